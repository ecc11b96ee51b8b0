//! The two pages and the files that they load. No build step, no inline script: the pages tell the script what it needs
//! in `data-` attributes, and the script puts everything that comes from the API into the page as text.

use std::borrow::Cow;

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};

use super::answer::{Answer, error, text};
use super::{Access, State, colors};

pub(super) fn routes(state: &State) -> Answer {
    page(state, "routes", ROUTES, "")
}

/// The editor of one override. `suffix` is decoded.
pub(super) fn manual(state: &State, suffix: &str) -> Answer {
    page(state, "manual", MANUAL, suffix)
}

/// A file of the pages. Names are those of a list; there is no directory behind them.
pub(super) fn asset(name: &str) -> Answer {
    let (content_type, content) = match name {
        "app.js" => ("text/javascript; charset=utf-8", include_str!("assets/app.js")),
        "style.css" => ("text/css; charset=utf-8", include_str!("assets/style.css")),
        "logo.svg" => ("image/svg+xml", include_str!("assets/logo.svg")),
        "logo.bw.svg" => ("image/svg+xml", include_str!("assets/logo.bw.svg")),
        _ => return error(StatusCode::NOT_FOUND, "404 page not found"),
    };
    let mut answer = text(content_type, content);
    // The address carries the version.
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    answer
}

fn page(state: &State, name: &str, main: &str, suffix: &str) -> Answer {
    let config = &state.config;
    let link = &config.source_link;
    let title = match config.title.as_str() {
        "" => Cow::Borrowed("ferrio"),
        title => Cow::Owned(format!("ferrio - {title}")),
    };
    let color = colors::classes(&config.color);
    let flag = |set: bool| if set { "true" } else { "" };
    let value = |field: &str| -> &str {
        match field {
            "page" => name,
            "base" => &state.base,
            "title" => &title,
            "heading" => &config.title,
            "color" => &color,
            "version" => state.views.version,
            "suffix" => suffix,
            "key" => {
                if suffix.is_empty() {
                    "default"
                } else {
                    suffix
                }
            }
            "writable" => flag(config.access == Access::ReadWrite),
            "link-enabled" => flag(link.enabled),
            "link-new-tab" => flag(link.new_tab),
            "link-scheme" => &link.scheme,
            "link-host" => &link.host,
            "link-port" => &link.port,
            _ => "",
        }
    };
    let html = [FRAME_TOP, main, FRAME_END].map(|part| fill(part, value)).concat();
    text("text/html; charset=utf-8", html)
}

/// Puts values, escaped, where the template says `{{name}}`.
fn fill<'v>(template: &str, value: impl Fn(&str) -> &'v str) -> String {
    let mut out = String::with_capacity(template.len() + 256);
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("our own templates close their braces");
        out.push_str(before);
        escape(&mut out, value(name));
        rest = after;
    }
    out.push_str(rest);
    out
}

fn escape(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
}

const FRAME_TOP: &str = include_str!("assets/top.html");
const ROUTES: &str = include_str!("assets/routes.html");
const MANUAL: &str = include_str!("assets/manual.html");
const FRAME_END: &str = "</body>\n</html>\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_never_templates() {
        let filled = fill("<a href=\"{{a}}\">{{b}}</a>{{none}}", |name| match name {
            "a" => "\" onclick='x'&{{b}}",
            "b" => "<script>",
            _ => "",
        });
        assert_eq!(filled, "<a href=\"&#34; onclick=&#39;x&#39;&amp;{{b}}\">&lt;script&gt;</a>");
    }

    #[test]
    fn templates_ask_only_for_what_there_is() {
        let known = [
            "page",
            "base",
            "title",
            "heading",
            "color",
            "version",
            "suffix",
            "key",
            "writable",
            "link-enabled",
            "link-new-tab",
            "link-scheme",
            "link-host",
            "link-port",
        ];
        let mut seen = 0;
        for template in [FRAME_TOP, ROUTES, MANUAL] {
            let mut rest = template;
            while let Some((_, after)) = rest.split_once("{{") {
                let (name, after) = after.split_once("}}").expect("closed");
                assert!(known.contains(&name), "{name}");
                seen += 1;
                rest = after;
            }
        }
        assert!(seen >= known.len(), "{seen}");
    }

    #[test]
    fn nothing_comes_from_elsewhere_and_nothing_is_markup_by_accident() {
        let script = include_str!("assets/app.js");
        for file in [FRAME_TOP, ROUTES, MANUAL, script, include_str!("assets/style.css")] {
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "@import",
                "url(",
                "src=\"http",
                "style=\"",
                " onclick",
            ] {
                assert!(!file.contains(bad), "{bad}");
            }
            assert!(!file.contains("<script>"), "inline script");
        }
    }
}
