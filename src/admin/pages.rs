//! The page that shows everything, the files that it loads, and a plain page for those without JavaScript. No build step, no
//! inline script: the page tells the script what it needs in `data-` attributes, and the script puts everything that comes
//! from the API into the page as text.

use std::borrow::Cow;

use http::StatusCode;
use http::header::{CACHE_CONTROL, HeaderValue};

use super::answer::{Answer, error, text};
use super::{Access, State, colors};
use crate::route::Table;

/// Paths below the base that are pages of the app, overrides aside.
pub(super) const PAGES: &[&str] =
    &["/routes", "/rejects", "/explain", "/certificates", "/consul", "/timeline", "/control", "/config"];

pub(super) fn app(state: &State, suffix: &str) -> Answer {
    text(HTML, with_values(state, PAGE, suffix))
}

/// The table without script, as far as a browser takes it.
pub(super) async fn plain(state: &State) -> Answer {
    let top = with_values(state, PLAIN, "");
    let snapshot = state.views.table.load_full();
    match tokio::task::spawn_blocking(move || top + &rows(&snapshot.table)).await {
        Ok(html) => text(HTML, html),
        Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
    }
}

fn rows(table: &Table) -> String {
    let mut out = String::from("<table>\n<thead><tr>");
    for name in ["Source", "Service", "Target", "Options", "Share"] {
        out.push_str("<th scope=\"col\">");
        out.push_str(name);
        out.push_str("</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    let all = table.routes().flat_map(|route| route.targets.iter().map(move |target| (route, target)));
    for (route, target) in all.take(PLAIN_ROWS) {
        out.push_str("<tr>");
        let share = format!("{:.2}%", target.share * 100.0);
        let source = format!("{}{}", route.host, route.path);
        for cell in [&*source, &*target.service, &*target.destination.text, &*target.options.text(), &*share] {
            out.push_str("<td>");
            escape(&mut out, cell);
            out.push_str("</td>");
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</main>\n</body>\n</html>\n");
    out
}

/// A file of the pages. Names are those of a list; there is no directory behind them. A version before the name keeps
/// browsers from mixing files of two releases.
pub(super) fn asset(name: &str) -> Answer {
    let name = match name.split_once('/') {
        Some((version, name)) if version.starts_with('v') => name,
        _ => name,
    };
    let Some((_, content)) = FILES.iter().find(|(known, _)| *known == name) else {
        return error(StatusCode::NOT_FOUND, "404 page not found");
    };
    let content_type = match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        _ => "image/svg+xml",
    };
    let mut answer = text(content_type, *content);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    answer
}

fn with_values(state: &State, template: &str, suffix: &str) -> String {
    let config = &state.config;
    let link = &config.source_link;
    let title = match config.title.as_str() {
        "" => Cow::Borrowed("ferrio"),
        title => Cow::Owned(format!("ferrio - {title}")),
    };
    let color = colors::classes(&config.color);
    let flag = |set: bool| if set { "true" } else { "" };
    fill(template, |field: &str| -> &str {
        match field {
            "base" => &state.base,
            "title" => &title,
            "heading" => &config.title,
            "color" => &color,
            "version" => state.views.version,
            "suffix" => suffix,
            "writable" => flag(config.access == Access::ReadWrite),
            "link-enabled" => flag(link.enabled),
            "link-new-tab" => flag(link.new_tab),
            "link-scheme" => &link.scheme,
            "link-host" => &link.host,
            "link-port" => &link.port,
            _ => "",
        }
    })
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

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("assets/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] = files![
    "app.js" "api.js" "certificates.js" "config.js" "consul.js" "control.js" "dom.js" "explain.js" "list.js" "live.js"
    "manual.js" "rejects.js" "routes.js" "timeline.js" "style.css" "logo.svg" "logo.bw.svg"
];
const PAGE: &str = include_str!("assets/page.html");
const PLAIN: &str = include_str!("assets/plain.html");
const HTML: &str = "text/html; charset=utf-8";
/// Beyond that browsers become slow; there is the text.
const PLAIN_ROWS: usize = 10_000;

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
            "base",
            "title",
            "heading",
            "color",
            "version",
            "suffix",
            "writable",
            "link-enabled",
            "link-new-tab",
            "link-scheme",
            "link-host",
            "link-port",
        ];
        let mut seen = 0;
        for template in [PAGE, PLAIN] {
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
        let files = FILES.iter().filter(|(name, _)| !name.ends_with(".svg")).map(|(_, content)| *content);
        for file in files.chain([PAGE, PLAIN]) {
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

    #[test]
    fn every_file_that_is_asked_for_is_there() {
        let mut seen = 0;
        for (name, content) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for part in content.split("\"./").skip(1) {
                let wanted = part.split('"').next().unwrap_or_default();
                assert!(FILES.iter().any(|(known, _)| *known == wanted), "{name} asks for {wanted}");
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }
}
