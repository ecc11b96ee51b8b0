//! A radix tree over byte strings whose nodes are shared between versions: a change copies the nodes above it and
//! nothing else. Nodes that no other version holds are changed in place.

use std::sync::Arc;

/// A map from byte strings to values that finds all keys that are prefixes of a string in one descent.
#[derive(Clone)]
pub(super) struct Tree<T> {
    root: Option<Arc<Node<T>>>,
}

#[derive(Clone)]
struct Node<T> {
    /// What this node adds to the key of its parent. Empty in the root at most.
    label: Box<[u8]>,
    value: Option<T>,
    /// In order of the first byte of their labels, which stands beside them.
    children: Vec<(u8, Arc<Node<T>>)>,
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { root: None }
    }
}

/// A string as the descent reads it: as it is, without case, or from its end.
pub(super) trait Key: Copy {
    fn len(self) -> usize;
    /// `i` is below `len`.
    fn at(self, i: usize) -> u8;

    fn continues_with(self, from: usize, label: &[u8]) -> bool {
        label.len() <= self.len() - from && label.iter().enumerate().all(|(i, &b)| self.at(from + i) == b)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Forward<'a>(pub(super) &'a [u8]);

/// ASCII letters in lower case.
#[derive(Clone, Copy)]
pub(super) struct Folded<'a>(pub(super) &'a [u8]);

#[derive(Clone, Copy)]
pub(super) struct Backward<'a>(pub(super) &'a [u8]);

impl Key for Forward<'_> {
    fn len(self) -> usize {
        self.0.len()
    }

    fn at(self, i: usize) -> u8 {
        self.0[i]
    }

    fn continues_with(self, from: usize, label: &[u8]) -> bool {
        self.0[from..].starts_with(label)
    }
}

impl Key for Folded<'_> {
    fn len(self) -> usize {
        self.0.len()
    }

    fn at(self, i: usize) -> u8 {
        self.0[i].to_ascii_lowercase()
    }
}

impl Key for Backward<'_> {
    fn len(self) -> usize {
        self.0.len()
    }

    fn at(self, i: usize) -> u8 {
        self.0[self.0.len() - 1 - i]
    }
}

impl<T> Tree<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Shows every value whose key is a prefix of `key`, the shortest first, with the length of that key.
    pub(super) fn walk<'t>(&'t self, key: impl Key, mut visit: impl FnMut(usize, &'t T)) {
        let mut next = self.root.as_deref();
        let mut depth = 0;
        while let Some(node) = next {
            if !key.continues_with(depth, &node.label) {
                return;
            }
            depth += node.label.len();
            if let Some(value) = &node.value {
                visit(depth, value);
            }
            if depth == key.len() {
                return;
            }
            next = node.child(key.at(depth));
        }
    }

    /// The longest key of at most `limit` bytes that is a prefix of `key`, and its value.
    pub(super) fn deepest(&self, key: impl Key, limit: usize) -> Option<(usize, &T)> {
        let mut found = None;
        self.walk(key, |depth, value| {
            if depth <= limit {
                found = Some((depth, value));
            }
        });
        found
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&T> {
        self.deepest(Forward(key), key.len()).filter(|(depth, _)| *depth == key.len()).map(|(_, value)| value)
    }

    /// All values, in order of their keys.
    pub(super) fn each<'t>(&'t self, mut visit: impl FnMut(&'t T)) {
        // Not recursive: the depth is up to whoever writes the keys.
        let mut waiting: Vec<&Node<T>> = self.root.as_deref().into_iter().collect();
        while let Some(node) = waiting.pop() {
            if let Some(value) = &node.value {
                visit(value);
            }
            waiting.extend(node.children.iter().rev().map(|(_, child)| child.as_ref()));
        }
    }
}

impl<T: Clone> Tree<T> {
    /// Lets `change` see and set the value of `key`; leaving `None` removes the key.
    pub(super) fn update(&mut self, key: &[u8], change: impl FnOnce(&mut Option<T>)) {
        match &mut self.root {
            Some(root) => {
                if !root_or_below(root, key, change) {
                    self.root = None;
                }
            }
            None => self.root = leaf(key, change),
        }
    }
}

impl<T> Node<T> {
    fn child(&self, first: u8) -> Option<&Self> {
        // Most nodes have a handful of children: scanning beats a binary search there.
        if self.children.len() <= 8 {
            return self.children.iter().find(|(b, _)| *b == first).map(|(_, child)| child.as_ref());
        }
        let at = self.children.binary_search_by_key(&first, |(b, _)| *b).ok()?;
        Some(&self.children[at].1)
    }
}

/// Returns false if the node holds nothing any more.
fn root_or_below<T: Clone>(node: &mut Arc<Node<T>>, key: &[u8], change: impl FnOnce(&mut Option<T>)) -> bool {
    let common = node.label.iter().zip(key).take_while(|(a, b)| a == b).count();
    if common < node.label.len() {
        let Some(new) = leaf(&key[common..], change) else { return true };
        split(node, common, new);
        return true;
    }
    let rest = &key[common..];
    let this = Arc::make_mut(node);
    match rest.first() {
        None => change(&mut this.value),
        Some(first) => match this.children.binary_search_by_key(first, |(b, _)| *b) {
            Ok(at) => {
                if !root_or_below(&mut this.children[at].1, rest, change) {
                    this.children.remove(at);
                }
            }
            Err(at) => {
                if let Some(new) = leaf(rest, change) {
                    this.children.insert(at, (*first, new));
                }
            }
        },
    }
    if this.value.is_none() && this.children.len() == 1 {
        let (_, child) = this.children.pop().expect("there is one child");
        let child = Arc::unwrap_or_clone(child);
        this.label = [&*this.label, &*child.label].concat().into();
        this.value = child.value;
        this.children = child.children;
    }
    this.value.is_some() || !this.children.is_empty()
}

/// Puts a new node above `node` that takes the first `at` bytes of its label, and `new` beside it.
fn split<T: Clone>(node: &mut Arc<Node<T>>, at: usize, new: Arc<Node<T>>) {
    let mut lower = Node::clone(node);
    let label: Box<[u8]> = lower.label[..at].into();
    lower.label = lower.label[at..].into();
    let mut upper = Node { label, value: None, children: vec![(lower.label[0], Arc::new(lower))] };
    match new.label.first() {
        None => upper.value = Arc::unwrap_or_clone(new).value,
        Some(&first) => {
            upper.children.push((first, new));
            upper.children.sort_by_key(|(b, _)| *b);
        }
    }
    *node = Arc::new(upper);
}

fn leaf<T>(label: &[u8], change: impl FnOnce(&mut Option<T>)) -> Option<Arc<Node<T>>> {
    let mut value = None;
    change(&mut value);
    value.is_some().then(|| Arc::new(Node { label: label.into(), value, children: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_map_and_old_versions_stay(
            steps in prop::collection::vec(("[ab/]{0,6}", prop::option::of(0u8..9)), 0..40),
            probe in "[ab/]{0,8}",
        ) {
            let mut tree = Tree::default();
            let mut map = BTreeMap::new();
            let mut versions = Vec::new();
            for (key, value) in steps {
                versions.push((tree.clone(), map.clone()));
                tree.update(key.as_bytes(), |v| *v = value);
                match value {
                    Some(v) => map.insert(key, v),
                    None => map.remove(&key),
                };
            }
            versions.push((tree, map));
            for (tree, map) in versions {
                let mut all = Vec::new();
                tree.each(|v| all.push(*v));
                prop_assert_eq!(all, map.values().copied().collect::<Vec<_>>());
                prop_assert_eq!(tree.is_empty(), map.is_empty());
                prop_assert_eq!(tree.get(probe.as_bytes()), map.get(&probe));
                let prefixes: Vec<_> =
                    (0..=probe.len()).filter_map(|n| map.get(&probe[..n]).map(|v| (n, *v))).collect();
                let mut seen = Vec::new();
                tree.walk(Forward(probe.as_bytes()), |n, v| seen.push((n, *v)));
                prop_assert_eq!(&seen, &prefixes);
                let reversed: String = probe.chars().rev().collect();
                seen.clear();
                tree.walk(Backward(reversed.as_bytes()), |n, v| seen.push((n, *v)));
                prop_assert_eq!(&seen, &prefixes);
                seen.clear();
                tree.walk(Folded(probe.to_uppercase().as_bytes()), |n, v| seen.push((n, *v)));
                prop_assert_eq!(seen, prefixes);
            }
        }
    }
}
