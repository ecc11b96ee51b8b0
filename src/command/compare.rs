//! `ferrio compare`: is our table the same as somebody else's? The check before a migration.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::arguments::Arguments;
use super::columns::{count, plain};
use super::remote::Remote;
use super::routes::{self, Row, share};
use super::{Answer, Failure, rejects, wait_for};

pub(super) fn run(arguments: &mut Arguments) -> Result<Answer, Failure> {
    let addr = arguments.next();
    arguments.done()?;
    let addr = addr.ok_or_else(|| Failure::Usage("whose table? Write the address of its admin listener".into()))?;
    let theirs = Remote::at(&addr, arguments.has("insecure"))?;
    let (ours, theirs, rejects) = wait_for(async {
        let theirs = routes::rows(&theirs).await?;
        let ours = routes::both(arguments).await?.rows;
        Ok((ours, theirs, rejects::rows(arguments).await?))
    })?;
    let differences = compare(&ours, &theirs);
    let good = differences.is_empty();
    if arguments.has("json") {
        let all: Vec<Value> = differences.iter().map(Difference::json).collect();
        let text = json!({ "same": good, "ours": ours.len(), "theirs": theirs.len(), "differences": all });
        return Ok(Answer { text: format!("{text:#}\n"), good });
    }
    let mut text = String::new();
    for difference in &differences {
        text.push_str(&format!("{}\n", plain(&difference.text())));
        if difference.what == What::OnlyThere {
            let why = rejects.iter().filter(|reject| reject.service.as_deref() == Some(difference.service.as_str()));
            for reject in why {
                text.push_str(&format!("    refused here: {}: {}\n", plain(&reject.text), plain(&reject.reason)));
            }
        }
    }
    let sizes = format!("{} here, {} there", count(ours.len(), "target"), theirs.len());
    text.push_str(&match differences.len() {
        0 => format!("The tables are the same: {sizes}\n"),
        n => format!("{}: {sizes}\n", count(n, "difference")),
    });
    Ok(Answer { text, good })
}

/// One thing in which two tables differ.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Difference {
    src: String,
    service: String,
    dst: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    OnlyHere,
    OnlyThere,
    /// Here and there.
    Share(String, String),
    Options {
        here: Vec<String>,
        there: Vec<String>,
    },
    Tags {
        here: Vec<String>,
        there: Vec<String>,
    },
}

impl Difference {
    fn text(&self) -> String {
        let target = format!("{} {} {}", self.src, self.service, self.dst);
        match &self.what {
            What::OnlyHere => format!("+ {target}: only here"),
            What::OnlyThere => format!("- {target}: only there"),
            What::Share(here, there) => format!("~ {target}: share {here} here, {there} there"),
            What::Options { here, there } => format!("~ {target}: options {}", words(here, there)),
            What::Tags { here, there } => format!("~ {target}: tags {}", words(here, there)),
        }
    }

    fn json(&self) -> Value {
        let mut all = json!({ "src": self.src, "service": self.service, "dst": self.dst });
        let (what, here, there) = match &self.what {
            What::OnlyHere => ("only here", json!(true), json!(false)),
            What::OnlyThere => ("only there", json!(false), json!(true)),
            What::Share(here, there) => ("share", json!(here), json!(there)),
            What::Options { here, there } => ("options", json!(here), json!(there)),
            What::Tags { here, there } => ("tags", json!(here), json!(there)),
        };
        all["what"] = json!(what);
        all["here"] = here;
        all["there"] = there;
        all
    }
}

fn words(here: &[String], there: &[String]) -> String {
    let side = |words: &[String], place: &str| match words {
        [] => String::new(),
        words => format!("{} only {place}", words.join(" ")),
    };
    let sides = [side(here, "here"), side(there, "there")];
    sides.into_iter().filter(|side| !side.is_empty()).collect::<Vec<_>>().join(", ")
}

/// By route and target; order never matters, and options are compared one by one.
fn compare(ours: &[Row], theirs: &[Row]) -> Vec<Difference> {
    let (ours, theirs) = (by_target(ours), by_target(theirs));
    let none = Vec::new();
    let mut differences = Vec::new();
    for key @ (src, service, dst) in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        let (here, there) = (ours.get(key).unwrap_or(&none), theirs.get(key).unwrap_or(&none));
        let mut say = |what| {
            differences.push(Difference { src: src.clone(), service: service.clone(), dst: dst.clone(), what });
        };
        // Targets that are the same but for their options stand in the order of these.
        for at in 0..here.len().max(there.len()) {
            let (here, there) = match (here.get(at), there.get(at)) {
                (Some(here), Some(there)) => (here, there),
                (Some(_), None) => {
                    say(What::OnlyHere);
                    continue;
                }
                _ => {
                    say(What::OnlyThere);
                    continue;
                }
            };
            let (of_here, of_there) = (options(here), options(there));
            if of_here != of_there {
                say(What::Options { here: without(&of_here, &of_there), there: without(&of_there, &of_here) });
            }
            let tags = |row: &Row| row.tags.iter().cloned().collect::<BTreeSet<_>>();
            let (of_here, of_there) = (tags(here), tags(there));
            if of_here != of_there {
                say(What::Tags { here: without(&of_here, &of_there), there: without(&of_there, &of_here) });
            }
            // fabio deals in ten-thousandths, and gives everybody at least one.
            if (here.weight - there.weight).abs() > 0.001 {
                say(What::Share(share(here.weight), share(there.weight)));
            }
        }
    }
    differences
}

fn by_target(rows: &[Row]) -> BTreeMap<(String, String, String), Vec<&Row>> {
    let mut all: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        // fabio writes a URL with a slash behind the host, or without one, as it came.
        let dst = row.dst.trim_end_matches('/').to_owned();
        all.entry((row.src(), row.service.clone(), dst)).or_default().push(row);
    }
    all.values_mut().for_each(|rows| rows.sort_by_key(|row| options(row)));
    all
}

fn options(row: &Row) -> BTreeSet<String> {
    row.opts.split_whitespace().map(str::to_owned).collect()
}

fn without(all: &BTreeSet<String>, others: &BTreeSet<String>) -> Vec<String> {
    all.difference(others).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(src: &str, dst: &str, opts: &str, weight: f64) -> Row {
        let (host, path) = src.split_at(src.find('/').unwrap_or(src.len()));
        Row {
            service: "s".into(),
            host: host.into(),
            path: path.into(),
            dst: dst.into(),
            opts: opts.into(),
            tags: vec![],
            weight,
        }
    }

    fn said(ours: &[Row], theirs: &[Row]) -> Vec<String> {
        compare(ours, theirs).iter().map(Difference::text).collect()
    }

    #[test]
    fn order_and_form_do_not_matter() {
        let ours = [row("h/a", "http://a:1/", "strip=/a proto=https", 0.5), row("h/a", "http://b:1/", "", 0.5)];
        let theirs = [row("h/a", "http://b:1", "", 0.5003), row("h/a", "http://a:1", "proto=https strip=/a", 0.4997)];
        assert_eq!(said(&ours, &theirs), [""; 0]);
    }

    #[test]
    fn every_kind_of_difference_is_said() {
        let ours = [
            row("h/a", "http://a:1/", "strip=/a x=1", 0.25),
            row("h/b", "http://b:1/", "", 1.0),
            row("/", "http://c:1/", "", 1.0),
        ];
        let mut tagged = row("/", "http://c:1/", "", 1.0);
        tagged.tags = vec!["blue".into()];
        let theirs = [row("h/a", "http://a:1/", "strip=/b x=1", 0.5), row("h/d", "http://d:1/", "", 1.0), tagged];
        assert_eq!(
            said(&ours, &theirs),
            [
                "~ / s http://c:1: tags blue only there",
                "~ h/a s http://a:1: options strip=/a only here, strip=/b only there",
                "~ h/a s http://a:1: share 25% here, 50% there",
                "+ h/b s http://b:1: only here",
                "- h/d s http://d:1: only there",
            ]
        );
    }

    #[test]
    fn targets_that_differ_in_options_only_are_told_apart() {
        let two = [row("/", "http://a:1/", "a=1", 0.5), row("/", "http://a:1/", "b=2", 0.5)];
        assert_eq!(said(&two, &[two[1].clone(), two[0].clone()]), [""; 0]);
        assert_eq!(said(&two, &two[..1]).len(), 1);
    }
}
