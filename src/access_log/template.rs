//! Templates: text and `$fields`.

use http::HeaderName;

use super::field::Field;
use super::format::FormatError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Segment {
    Text(String),
    Field(Field),
    /// Between double quotes, which its value must not end.
    Quoted(Field),
}

/// Headers that the template names are added to `headers`, each once.
///
/// A name goes on over letters, digits, `_` and `-`. A `$` before anything else is text, and so is what it stands before:
/// `$$a` is no field.
pub(super) fn parse(template: &str, headers: &mut Vec<HeaderName>) -> Result<Vec<Segment>, FormatError> {
    let mut segments = Vec::new();
    let mut text = String::new();
    let mut rest = template;
    let mut quoted = false;
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = name_length(&rest[1..]);
        if length == 0 {
            let end = rest.chars().take(2).map(char::len_utf8).sum();
            text.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let mut end = 1 + length;
        let mut name = &rest[1..end];
        let field = if name == "header" && rest[end..].starts_with('.') {
            end += 1;
            end += name_length(&rest[end..]);
            name = &rest[1..end];
            header(&name["header.".len()..], headers)
        } else {
            Field::from_name(name)
        };
        let field = field.ok_or_else(|| FormatError::Field(format!("${name}")))?;
        quoted ^= text.matches('"').count() % 2 == 1;
        if !text.is_empty() {
            segments.push(Segment::Text(std::mem::take(&mut text)));
        }
        segments.push(if quoted { Segment::Quoted(field) } else { Segment::Field(field) });
        rest = &rest[end..];
    }
    text.push_str(rest);
    if !text.is_empty() {
        segments.push(Segment::Text(text));
    }
    Ok(segments)
}

fn header(name: &str, headers: &mut Vec<HeaderName>) -> Option<Field> {
    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
    let place = headers.iter().position(|known| *known == name).unwrap_or_else(|| {
        headers.push(name);
        headers.len() - 1
    });
    Some(Field::Header(place))
}

fn name_length(text: &str) -> usize {
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Segment {
        Segment::Text(text.into())
    }

    #[test]
    fn templates_are_taken_apart() {
        let (status, method) = (Segment::Field(Field::ResponseStatus), Segment::Field(Field::RequestMethod));
        for (template, want) in [
            ("plain", vec![text("plain")]),
            ("$response_status", vec![status.clone()]),
            ("$response_status$request_method", vec![status.clone(), method.clone()]),
            ("a $response_status.$request_method z", vec![text("a "), status.clone(), text("."), method, text(" z")]),
            ("$$a", vec![text("$$a")]),
            ("$$$response_status", vec![text("$$"), status.clone()]),
            ("$ x$", vec![text("$ x$")]),
            ("$\u{e4}$", vec![text("$\u{e4}$")]),
            (
                "$header.X-A $header.x-a.b",
                vec![Segment::Field(Field::Header(0)), text(" "), Segment::Field(Field::Header(0)), text(".b")],
            ),
        ] {
            let mut headers = Vec::new();
            assert_eq!(parse(template, &mut headers), Ok(want), "{template}");
            assert_eq!(headers.len(), usize::from(template.contains("header")));
        }
    }

    #[test]
    fn unknown_fields_are_named() {
        for (template, name) in [
            ("$x", "$x"),
            ("a $remote_host-x b", "$remote_host-x"),
            ("$header", "$header"),
            ("$header.", "$header."),
            ("$header. x", "$header."),
            ("$headers.x", "$headers"),
            ("$Request", "$Request"),
        ] {
            let mistake = parse(template, &mut Vec::new());
            assert_eq!(mistake, Err(FormatError::Field(name.into())), "{template}");
        }
    }
}
