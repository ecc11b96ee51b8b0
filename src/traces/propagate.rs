//! Which forms of a trace's headers are spoken.

use std::num::NonZeroU64;

use http::HeaderMap;

use super::context::{Context, Parent};
use super::{Ratio, b3, w3c};

/// The forms that are read, the one that counts first in first place, and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    w3c: bool,
    b3: bool,
    b3_multi: bool,
    /// B3 was named before W3C.
    b3_first: bool,
}

/// A word that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(pub String);

impl Default for Formats {
    fn default() -> Self {
        Self { w3c: true, b3: false, b3_multi: false, b3_first: false }
    }
}

impl Formats {
    /// Of `w3c`, `b3` and `b3multi`; none: nothing is read or written.
    pub fn new<'w>(words: impl IntoIterator<Item = &'w str>) -> Result<Self, UnknownFormat> {
        let mut formats = Self { w3c: false, ..Self::default() };
        for word in words {
            match word {
                "w3c" => formats.w3c = true,
                "b3" => formats.b3 = true,
                "b3multi" => formats.b3_multi = true,
                other => return Err(UnknownFormat(other.to_owned())),
            }
            formats.b3_first |= word != "w3c" && !formats.w3c;
        }
        Ok(formats)
    }

    /// The trace of a request with these headers.
    pub fn context(self, headers: &HeaderMap, sample: Ratio, random: &mut fastrand::Rng) -> Context {
        Context::new(self.read(headers), sample, random)
    }

    /// What the sender says. With either form of B3 both are read.
    fn read(self, headers: &HeaderMap) -> Option<Parent> {
        let w3c = || if self.w3c { w3c::read(headers) } else { None };
        let b3 = || if self.b3 || self.b3_multi { b3::read(headers) } else { None };
        if self.b3_first { b3().or_else(w3c) } else { w3c().or_else(b3) }
    }

    /// Names `span` as the parent of whatever comes of a request with these headers.
    pub fn write(self, context: &Context, span: NonZeroU64, headers: &mut HeaderMap) {
        if self.w3c {
            w3c::write(context, span, headers);
        }
        if self.b3 || self.b3_multi {
            b3::write(context, span, self.b3, self.b3_multi, headers);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_one_that_says_something_counts() {
        let (w3c, b3) =
            ("00-000000000000000000000000000000aa-000000000000000a-01", "00000000000000bb-000000000000000b-1");
        for (words, traceparent, single, want) in [
            (&["w3c"][..], w3c, b3, Some(0xaa)),
            (&["b3"], w3c, b3, Some(0xbb)),
            (&["b3multi"], w3c, b3, Some(0xbb)),
            (&["w3c", "b3"], w3c, b3, Some(0xaa)),
            (&["b3multi", "w3c"], w3c, b3, Some(0xbb)),
            (&["w3c", "b3"], "00-", b3, Some(0xbb)),
            (&["b3", "w3c"], w3c, "?", Some(0xaa)),
            (&["w3c"], "00-", b3, None),
            (&[], w3c, b3, None),
        ] {
            let formats = Formats::new(words.iter().copied()).unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", HeaderValue::from_static(traceparent));
            headers.insert("b3", HeaderValue::from_static(single));
            let trace = formats.read(&headers).map(|parent| parent.ids.unwrap().0.get());
            assert_eq!(trace, want, "{words:?} {traceparent} {single}");
            let context = formats.context(&headers, Ratio::ALL, &mut fastrand::Rng::with_seed(1));
            formats.write(&context, context.span, &mut headers);
            // What is written says the same in every form.
            for form in words {
                let read = Formats::new([*form]).unwrap().read(&headers);
                let mut alone = headers.clone();
                if *form == "b3multi" {
                    alone.remove("b3");
                }
                let ids = read.unwrap().ids.unwrap();
                assert_eq!(ids, (context.trace, context.span), "{words:?} {form}");
            }
            // And what is not spoken, is left alone.
            if !words.contains(&"w3c") {
                assert_eq!(headers["traceparent"], traceparent);
            }
            if !words.iter().any(|word| word.starts_with("b3")) {
                assert_eq!(headers["b3"], single);
            }
        }
        assert_eq!(Formats::new(["jaeger"]), Err(UnknownFormat("jaeger".into())));
        assert_eq!(Formats::new(["w3c"]), Ok(Formats::default()));
    }

    proptest::proptest! {
        /// Whatever comes, what goes on can be understood, and says what was decided.
        #[test]
        fn nonsense_becomes_a_trace(
            fields in proptest::collection::vec((0..NAMES.len(), "(00|cc|ff|[0-9a-f]{16}|[0-9a-f]{32}|-|[01d]|[ -~]){0,9}"), 0..6),
            ratio in 0.0..=1.0,
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(NAMES[name], HeaderValue::from_str(&value).unwrap());
            }
            let mut random = fastrand::Rng::with_seed(7);
            for words in [&["w3c"][..], &["b3"], &["b3multi"], &["b3", "w3c", "b3multi"]] {
                let formats = Formats::new(words.iter().copied()).unwrap();
                let mut sent = headers.clone();
                let context = formats.context(&sent, Ratio::new(ratio).unwrap(), &mut random);
                formats.write(&context, context.span, &mut sent);
                let next = formats.context(&sent, Ratio::new(0.0).unwrap(), &mut random);
                proptest::prop_assert_eq!(next.trace, context.trace);
                proptest::prop_assert_eq!(next.parent, Some(context.span));
                proptest::prop_assert_eq!(next.sampled, context.sampled);
            }
        }
    }

    const NAMES: &[&str] =
        &["traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-sampled", "x-b3-flags"];
}
