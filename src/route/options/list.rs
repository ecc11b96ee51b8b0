//! All options of tags and of `opts` in commands, for the reference page and for finding misspelt ones.

/// An option as the reference shows it.
pub struct TagOption {
    pub name: &'static str,
    /// How it is written.
    pub form: &'static str,
    pub meaning: &'static str,
    /// The page that tells more, without `.md`.
    pub page: &'static str,
    /// fabio knows it too.
    pub fabio: bool,
}

/// The option of this name.
pub fn tag_option(name: &str) -> Option<&'static TagOption> {
    TAG_OPTIONS.iter().find(|option| option.name == name)
}

/// The table of the page about tags, as Markdown.
pub fn tag_table() -> String {
    let mut out = String::from("| option | written as | means | more |\n| --- | --- | --- | --- |\n");
    for TagOption { name, form, meaning, page, fabio } in TAG_OPTIONS {
        let new = if *fabio { "" } else { " *" };
        out.push_str(&format!("| `{name}`{new} | {form} | {meaning} | [{page}]({page}.md) |\n"));
    }
    out
}

macro_rules! table {
    ($($name:literal $fabio:ident $form:literal $meaning:literal $page:literal;)*) => {
        /// By what they are about.
        pub static TAG_OPTIONS: &[TagOption] = &[$(TagOption {
            name: $name,
            form: $form,
            meaning: $meaning,
            page: $page,
            fabio: table!($fabio),
        },)*];
    };
    (fabio) => { true };
    (new) => { false };
}

table! {
    "proto" fabio "`http`, `https`, `tcp`, `tcps`, `udp`, `grpc`, `grpcs`, `h2`, `h2c`" "how the target is spoken to" "grpc";
    "strip" fabio "`/prefix`" "takes the prefix off the path; targets see it in `X-Forwarded-Prefix`" "http";
    "prepend" fabio "`/prefix`" "puts a prefix before the path" "http";
    "replace" new "`/old,/new`" "one prefix instead of another" "http";
    "rewrite" new "`EXPRESSION,TEXT`" "a regular expression for the path, and what takes the place of its first match" "http";
    "host" fabio "`dst`, a name" "the Host that the target gets: its own, or this one" "http";
    "redirect" fabio "`CODE,URL`" "answers with a redirect; `$path` and `$host` are those of the request" "http";
    "register" fabio "a name" "also registers this name in Consul, pointing to ferrio" "routes";
    "path" new "`exact`, `prefix`" "`exact`: only this path, nothing below it" "http";
    "method" new "`GET,HEAD`" "only these methods" "http";
    "header" new "`NAME`, `NAME:VALUE`, `NAME~EXPRESSION`" "only requests with this header; `!` before it: without; a bar between several" "http";
    "query" new "`NAME`, `NAME=VALUE`" "only requests with this parameter" "http";
    "cookie" new "`NAME=VALUE`" "only requests with this cookie" "http";
    "options" new "a name" "more options, from Consul's KV store; in tags only" "http";
    "allow" fabio "`ip:10.0.0.0/8,ip:192.0.2.7`" "lets in these addresses only" "access";
    "deny" fabio "as `allow`" "keeps these addresses out" "access";
    "auth" fabio "`a`, `a,b`, `a+b`" "schemes of `proxy.auth` that let clients in: one of them, or all of them" "access";
    "maxbody" new "`10m`" "bytes in the body of a request (`k`, `m`, `g`); 0: any number" "http";
    "rate" new "`100/s`, `30/m`, `1000/h`" "so many requests over time, else 429" "targets";
    "burst" new "a number" "requests that may come at once" "targets";
    "ratekey" new "`route`, `ip`, `header:NAME`" "whose requests are counted together" "targets";
    "reqset" new "`NAME:VALUE`" "sets a header for the target; a bar between several, `%20` for a blank" "http";
    "reqadd" new "`NAME:VALUE`" "adds one" "http";
    "reqdel" new "`NAME`" "takes one away" "http";
    "respset" new "`NAME:VALUE`" "sets a header for the client" "http";
    "respadd" new "`NAME:VALUE`" "adds one" "http";
    "respdel" new "`NAME`" "takes one away" "http";
    "secure" new "`true`" "the usual security headers" "http";
    "cors" new "`https://a.com`, `*`" "pages of these origins may use the route, preflights included" "http";
    "compress" new "`off`" "responses go on as they are" "http";
    "errorpages" new "a name" "the set of pages for ferrio's own errors" "http";
    "weight" fabio "`0.2`, `0`, `-1`" "share of the requests; 0: none, -1: automatic" "balancing";
    "strategy" new "`rnd`, `rr`, `p2c`, `least`, `hash=KEY`" "how a target is chosen" "balancing";
    "hash" new "`header:NAME`, `cookie:NAME`, `ip`, `path`" "short for `strategy=hash=KEY`" "balancing";
    "priority" new "a number" "targets of a higher number are asked only when none of a lower one is available" "balancing";
    "failopen" new "`true`" "when no instance of the service is well, all of them are used" "balancing";
    "sticky" new "name of a cookie" "a client stays with the instance that answered it first" "balancing";
    "stickypath" new "`/app`" "`Path` of that cookie" "balancing";
    "stickymaxage" new "`3600`, `12h`" "`Max-Age` of it" "balancing";
    "stickysecure" new "`true`" "`Secure`" "balancing";
    "stickyhttponly" new "`true`, `false`" "`HttpOnly`" "balancing";
    "stickysamesite" new "`strict`, `lax`, `none`" "`SameSite`" "balancing";
    "mirror" new "`SERVICE:PERCENT`" "so many of a hundred requests are also sent to that service" "balancing";
    "timeout" new "`30s`" "from the request to the end of the response, with all tries" "targets";
    "headertimeout" new "`5s`" "until the response begins" "targets";
    "connecttimeout" new "`1s`" "for a connection" "targets";
    "idletimeout" new "`30m`" "how long nothing may move on a WebSocket or a TCP connection" "http";
    "retry" new "`0` to `10`, `off`" "sends a failed request again, to another target if there is one" "targets";
    "retryon" new "`5xx,502,reset,timeout,connect`" "what is retried on" "targets";
    "retrymethods" new "`GET,POST`, `*`" "methods that may be executed twice" "targets";
    "trytimeout" new "`2s`" "until the response of one try begins" "targets";
    "eject" new "a number, `off`" "failures to connect in a row that put a target out for a while" "targets";
    "eject5xx" new "a number, `off`" "the same for 502, 503, 504 and time-outs" "targets";
    "ejectrate" new "a percentage, `off`" "success rate below which a target is put out" "targets";
    "ejecttime" new "`5s`" "how long at first" "targets";
    "ejectmax" new "`5m`" "how long at most" "targets";
    "slowstart" new "`30s`" "a new target gets its whole share after this time" "targets";
    "check" new "`tcp`, `http:/health`, `grpc:shop.Cart`" "asks the target itself, beside Consul" "targets";
    "checkinterval" new "`10s`" "how often" "targets";
    "checktimeout" new "`2s`" "how long that may take" "targets";
    "maxconn" new "a number" "requests under way at the target" "targets";
    "maxpending" new "a number" "requests that wait for one of them to end" "targets";
    "queuetimeout" new "`1s`" "how long they wait" "targets";
    "routemaxconn" new "a number" "requests under way on the route" "targets";
    "tlsskipverify" fabio "`true`" "the certificate of the target is not verified" "targets-tls";
    "servername" new "a name" "the name in the certificate of the target" "targets-tls";
    "cafile" new "a name of `proxy.targettls`" "whose certificates count" "targets-tls";
    "clientcert" new "a name of `proxy.targettls`" "the certificate that the target is shown" "targets-tls";
    "alpn" new "`h2,http/1.1`" "protocols that are offered to the target" "targets-tls";
    "connect" new "`true`" "the target is in Consul's service mesh" "targets-tls";
    "grpcservername" fabio "a name" "the name in the certificate of a `grpcs` target" "grpc";
    "pxyproto" fabio "`true` (`v1`), `v2`" "a PROXY header for the target" "tcp";
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Words between quotes in the code of the parser that are a whole line of a `match`, an argument or an element.
    fn keys_of_the_parser() -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/route");
        let mut files = vec![folder.join("options.rs"), folder.join("tags.rs"), folder.join("edits.rs")];
        files.extend(std::fs::read_dir(folder.join("options")).unwrap().map(|entry| entry.unwrap().path()));
        files.retain(|file| file.is_file() && !file.ends_with("list.rs"));
        assert!(files.len() >= 12, "{files:?}");
        let asked = regex::Regex::new(
            r#"(?:given|filled|get|contains_key|time|flag|list)\("([a-z0-9]+)"|^\s+\(?"([a-z0-9]+)"(?:,.*)? (?:=>|\|)|const [A-Z_]+: &str = "([a-z]+)";"#,
        )
        .unwrap();
        let mut keys = BTreeSet::new();
        for file in files {
            let text = std::fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for line in code.lines() {
                keys.extend(
                    asked
                        .captures_iter(line)
                        .filter_map(|found| (1..=3).find_map(|at| Some(found.get(at)?.as_str().to_owned()))),
                );
            }
        }
        keys
    }

    #[test]
    fn the_list_has_what_the_parser_asks_for() {
        // Values, not keys.
        let values = [
            "exact", "prefix", "off", "reset", "rnd", "rr", "p2c", "least", "ip", "dst", "5xx", "tcp", "tcps", "udp",
            "grpc", "grpcs", "h2c", "h", "m", "s", "ms", "k", "g",
        ];
        let keys = keys_of_the_parser();
        let missing: Vec<&String> =
            keys.iter().filter(|key| tag_option(key).is_none() && !values.contains(&key.as_str())).collect();
        assert!(missing.is_empty(), "not in the list: {missing:?}");
        assert!(keys.len() >= 40, "{keys:?}");
        let names: BTreeSet<&str> = TAG_OPTIONS.iter().map(|option| option.name).collect();
        assert_eq!(names.len(), TAG_OPTIONS.len(), "a name stands there twice");
    }

    #[test]
    fn the_page_about_tags_has_the_table() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
        let page = std::fs::read_to_string(docs.join("tags.md")).unwrap();
        assert!(page.contains(&tag_table()), "docs/tags.md is out of date: ferrio config --tags");
        for option in TAG_OPTIONS {
            let more = std::fs::read_to_string(docs.join(format!("{}.md", option.page))).unwrap();
            let said = |text: String| more.contains(&text);
            let name = option.name;
            assert!(
                said(format!("`{name}")) || said(format!("{name}=")),
                "docs/{}.md says nothing of {name}",
                option.page
            );
        }
    }
}
