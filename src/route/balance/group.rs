//! Targets of one priority, and the choice between them.

use std::cell::OnceCell;

use super::rendezvous::{Race, limit};
use super::{Circumstances, Strategy};
use crate::route::turn::Turns;
use crate::route::weight::shares;
use crate::route::{Priority, Target, Turn, Weight};

/// The targets of a route that have the same priority.
#[derive(Debug)]
pub(in crate::route) struct Group {
    turns: Turns,
    /// Those that have a share, by their index in the route.
    members: Box<[u32]>,
    /// All shares are the same.
    equal: bool,
}

impl Group {
    /// Orders targets by priority and gives them their shares, which are those of their group.
    pub(in crate::route) fn divide(targets: &mut [Target]) -> Box<[Self]> {
        let mut priorities: Vec<Priority> = targets.iter().map(Target::priority).collect();
        priorities.sort_unstable();
        priorities.dedup();
        priorities.into_iter().map(|priority| Self::new(priority, targets)).collect()
    }

    fn new(priority: Priority, targets: &mut [Target]) -> Self {
        let inside = |target: &Target| target.priority() == priority;
        let weights: Vec<Weight> = targets.iter().filter(|target| inside(target)).map(|target| target.weight).collect();
        for (target, share) in targets.iter_mut().filter(|target| inside(target)).zip(shares(&weights)) {
            target.share = share;
        }
        let all: Vec<f64> = targets.iter().map(|target| if inside(target) { target.share } else { 0.0 }).collect();
        let turns = Turns::new(&all);
        let members = (0..).zip(&all).filter(|(_, share)| **share > 0.0).map(|(index, _)| index).collect();
        Self { equal: !matches!(turns, Turns::Weighted(_)), turns, members }
    }

    /// By weight alone, whoever is usable.
    pub(in crate::route) fn pick(&self, turn: Turn) -> Option<usize> {
        self.turns.pick(turn)
    }

    /// `None` if no target of the group is usable. `turn`: taken for this choice. `key` is for [`Strategy::Hash`]; without one the choice is random.
    pub(in crate::route) fn choose(
        &self,
        targets: &[Target],
        strategy: &Strategy,
        key: Option<u64>,
        conditions: &impl Circumstances,
        turn: &OnceCell<u64>,
    ) -> Option<usize> {
        match (strategy, key) {
            (Strategy::Random, _) | (Strategy::Hash(_), None) => self.draw(targets, conditions),
            (Strategy::RoundRobin, _) => self.next(targets, conditions, turn),
            (Strategy::TwoChoices, _) => self.better_of_two(targets, conditions),
            (Strategy::Least, _) => self.least(targets, conditions),
            (Strategy::Hash(_), Some(key)) => self.hashed(targets, key, conditions),
        }
    }

    /// At random, by weight. With few that are not usable, going on drawing keeps the weights exactly and costs least.
    fn draw(&self, targets: &[Target], conditions: &impl Circumstances) -> Option<usize> {
        for _ in 0..DRAWS {
            let index = self.turns.pick(Turn::Random(conditions.random()))?;
            if conditions.usable(index) {
                return Some(index);
            }
        }
        self.draw_usable(targets, conditions, None)
    }

    /// At random, by weight, from those that are usable and not `but`.
    fn draw_usable(&self, targets: &[Target], conditions: &impl Circumstances, but: Option<usize>) -> Option<usize> {
        // Each takes the place of those before it with the probability of its part: one look at each is enough.
        let (mut sum, mut drawn) = (0.0, None);
        for index in self.members().filter(|index| Some(*index) != but && conditions.usable(*index)) {
            let share = targets[index].share;
            sum += share;
            if fraction(conditions.random()) * sum < share {
                drawn = Some(index);
            }
        }
        drawn
    }

    /// The one whose turn it is, else another one at random. A turn is taken once per choice: groups that take several
    /// each would fall into step with their targets.
    fn next(&self, targets: &[Target], conditions: &impl Circumstances, turn: &OnceCell<u64>) -> Option<usize> {
        let index = self.turns.pick(Turn::Nth(*turn.get_or_init(|| conditions.turn())))?;
        if conditions.usable(index) { Some(index) } else { self.draw_usable(targets, conditions, None) }
    }

    /// The first of two different ones that are drawn by weight, unless the request would be better off with the second.
    /// So the weights decide while there is little to do, and load and latency when there is more.
    fn better_of_two(&self, targets: &[Target], conditions: &impl Circumstances) -> Option<usize> {
        let first = self.draw(targets, conditions)?;
        let Some(second) = self.another(targets, first, conditions) else { return Some(first) };
        let load = |index: usize, more: u32| {
            // What it is good for, compared with the average.
            let strength = targets[index].share * self.members.len() as f64;
            1.0 + f64::from(conditions.in_flight(index) + more) / strength
        };
        let (a, b) = (conditions.latency(first), conditions.latency(second));
        // One that was never measured is judged by its load alone.
        let (a, b) = if a > 0.0 && b > 0.0 { (a, b) } else { (1.0, 1.0) };
        Some(if b * load(second, 1) <= a * load(first, 0) { second } else { first })
    }

    fn another(&self, targets: &[Target], first: usize, conditions: &impl Circumstances) -> Option<usize> {
        if self.members.len() < 2 {
            return None;
        }
        for _ in 0..DRAWS {
            let index = self.turns.pick(Turn::Random(conditions.random()))?;
            if index != first && conditions.usable(index) {
                return Some(index);
            }
        }
        self.draw_usable(targets, conditions, Some(first))
    }

    /// The fewest in flight for its share, if that is fewer than what one has that is drawn by weight.
    fn least(&self, targets: &[Target], conditions: &impl Circumstances) -> Option<usize> {
        let first = self.draw(targets, conditions)?;
        let load = |index: usize, more: u32| f64::from(conditions.in_flight(index) + more) / targets[index].share;
        let drawn = load(first, 0);
        if drawn == 0.0 {
            return Some(first);
        }
        // Begins at the drawn one, so that equals behind a busy one get the same chance each.
        let at = self.members.partition_point(|index| (*index as usize) < first);
        let (before, behind) = self.members.split_at(at);
        let others = behind.iter().chain(before).map(|index| *index as usize).filter(|index| *index != first);
        let (mut best, mut lowest) = (first, f64::INFINITY);
        for index in others.take(LOOKED_AT) {
            // Going there must not make things worse, this request counted.
            if load(index, 1) <= drawn && load(index, 0) < lowest && conditions.usable(index) {
                (best, lowest) = (index, load(index, 0));
            }
        }
        Some(best)
    }

    /// The winner of the race for this key. If that one has much more to do than its share, the next one that has not.
    fn hashed(&self, targets: &[Target], key: u64, conditions: &impl Circumstances) -> Option<usize> {
        let mut race = Race::new(key, self.equal);
        let (mut requests, mut sum) = (1, 0.0);
        for index in self.members().filter(|index| conditions.usable(*index)) {
            race.enter(index, targets[index].place(), targets[index].share);
            requests += u64::from(conditions.in_flight(index));
            sum += targets[index].share;
        }
        let winner = race.winner()?;
        let free = |index: usize| u64::from(conditions.in_flight(index)) < limit(requests, targets[index].share / sum);
        if free(winner) {
            return Some(winner);
        }
        let mut race = Race::new(key, self.equal);
        for index in self.members().filter(|index| conditions.usable(*index) && free(*index)) {
            race.enter(index, targets[index].place(), targets[index].share);
        }
        // Counts may move between the two looks, so that nobody is free any more.
        race.winner().or(Some(winner))
    }

    fn members(&self) -> impl Iterator<Item = usize> {
        self.members.iter().map(|index| *index as usize)
    }
}

/// From 0 up to, but without, 1.
fn fraction(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// Even with half of the targets not usable, all of these miss once in 256 times.
const DRAWS: usize = 8;
/// From here on the fewest of some is as good as the fewest of all, and cheaper.
const LOOKED_AT: usize = 256;
