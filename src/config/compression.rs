//! Compression of responses: `proxy.gzip.*` and `proxy.compress`.

use super::expression;
use super::settings::Settings;
use super::suggest::near;
use crate::proxy::http::{Coding, Compression};

/// `None` if nothing is to be compressed, or if something is wrong, which is reported.
pub(crate) fn read(settings: &mut Settings) -> Option<Compression> {
    let mut codings = Vec::new();
    for word in settings.values.proxy_compress.clone() {
        match Coding::ALL.into_iter().find(|coding| coding.name() == word) {
            Some(coding) if codings.contains(&coding) => {}
            Some(coding) => codings.push(coding),
            None => {
                let names = Coding::ALL.map(Coding::name);
                let hint =
                    near(&word, names.into_iter()).map(|name| format!("; did you mean {name}?")).unwrap_or_default();
                settings.mistake(COMPRESS, &format!("{word:?} is no coding; write gzip, br or zstd{hint}"));
            }
        }
    }
    let types = settings.values.proxy_gzip_contenttype.clone();
    if !types.is_empty() && !codings.contains(&Coding::Gzip) {
        codings.push(Coding::Gzip);
    }
    let types = match expression::compile(if types.is_empty() { TYPES } else { &types }) {
        Ok(types) => types,
        Err(reason) => {
            let hint = "in a file a backslash is written twice";
            settings
                .mistake("proxy.gzip.contenttype", &format!("invalid expression for content types: {reason}; {hint}"));
            return None;
        }
    };
    let min_size = u64::try_from(settings.values.proxy_gzip_minsize).unwrap_or_default();
    (!codings.is_empty()).then_some(Compression { types, min_size, codings })
}

const COMPRESS: &str = "proxy.compress";

/// Text in the widest sense: what `proxy.compress` means without an expression.
const TYPES: &str = r"^(text/.*|application/(javascript|json|xml|wasm)|image/svg\+xml|.*\+(json|xml))(;.*)?$";
