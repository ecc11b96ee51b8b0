//! Which fields a head has, of those that somebody asks for on every message.
//!
//! Most of them are on hardly any message, and a look into a map costs a hash. So all names are looked at once.

use http::HeaderMap;

/// A set of fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present(u32);

macro_rules! fields {
    ($($field:ident $bit:literal $name:literal,)*) => {
        impl Present {
            $(pub const $field: Self = Self(1 << $bit);)*

            /// All that are known here, with their names.
            #[cfg(test)]
            const ALL: &[(Self, &str)] = &[$((Self::$field, $name),)*];
        }
    };
}

fields! {
    CONNECTION 0 "connection",
    CONTENT_LENGTH 1 "content-length",
    CONTENT_TYPE 2 "content-type",
    DATE 3 "date",
    EXPECT 4 "expect",
    FORWARDED 5 "forwarded",
    KEEP_ALIVE 6 "keep-alive",
    PROXY_AUTHENTICATE 7 "proxy-authenticate",
    PROXY_AUTHORIZATION 8 "proxy-authorization",
    PROXY_CONNECTION 9 "proxy-connection",
    TE 10 "te",
    TRANSFER_ENCODING 11 "transfer-encoding",
    UPGRADE 12 "upgrade",
    X_FORWARDED_FOR 13 "x-forwarded-for",
    X_FORWARDED_HOST 14 "x-forwarded-host",
    X_FORWARDED_PORT 15 "x-forwarded-port",
    X_FORWARDED_PROTO 16 "x-forwarded-proto",
    X_REAL_IP 17 "x-real-ip",
    ORIGIN 18 "origin",
}

impl Present {
    pub fn of(headers: &HeaderMap) -> Self {
        headers.keys().fold(Self::default(), |all, name| all.with(Self::named(name.as_str())))
    }

    /// `name` in lower case.
    pub fn named(name: &str) -> Self {
        // By length first: it tells nearly all names apart.
        match name.len() {
            2 if name == "te" => Self::TE,
            4 if name == "date" => Self::DATE,
            6 => match name {
                "expect" => Self::EXPECT,
                "origin" => Self::ORIGIN,
                _ => Self::default(),
            },
            7 if name == "upgrade" => Self::UPGRADE,
            9 => match name {
                "forwarded" => Self::FORWARDED,
                "x-real-ip" => Self::X_REAL_IP,
                _ => Self::default(),
            },
            10 => match name {
                "connection" => Self::CONNECTION,
                "keep-alive" => Self::KEEP_ALIVE,
                _ => Self::default(),
            },
            12 if name == "content-type" => Self::CONTENT_TYPE,
            14 if name == "content-length" => Self::CONTENT_LENGTH,
            15 if name == "x-forwarded-for" => Self::X_FORWARDED_FOR,
            16 => match name {
                "x-forwarded-host" => Self::X_FORWARDED_HOST,
                "x-forwarded-port" => Self::X_FORWARDED_PORT,
                "proxy-connection" => Self::PROXY_CONNECTION,
                _ => Self::default(),
            },
            17 => match name {
                "transfer-encoding" => Self::TRANSFER_ENCODING,
                "x-forwarded-proto" => Self::X_FORWARDED_PROTO,
                _ => Self::default(),
            },
            18 if name == "proxy-authenticate" => Self::PROXY_AUTHENTICATE,
            19 if name == "proxy-authorization" => Self::PROXY_AUTHORIZATION,
            _ => Self::default(),
        }
    }

    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// At least one of these.
    pub const fn any(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn every_name_is_known_as_itself() {
        let mut all = HeaderMap::new();
        let mut every = Present::default();
        for (field, name) in Present::ALL {
            assert_eq!(Present::named(name), *field, "{name}");
            assert!(!every.any(*field), "{name} has a bit of its own");
            let mut one = HeaderMap::new();
            one.insert(HeaderName::from_static(name), HeaderValue::from_static(""));
            one.insert("x-other", HeaderValue::from_static(""));
            assert_eq!(Present::of(&one), *field, "{name}");
            all.extend(one);
            every = every.with(*field);
        }
        assert_eq!(Present::of(&all), every);
        assert_eq!(Present::of(&HeaderMap::new()), Present::default());
    }

    #[test]
    fn others_are_not_known() {
        for name in ["ty", "host", "accept", "cookie2", "x-forwardee-for", "content-lengt", "x-ssl-client-dn"] {
            assert_eq!(Present::named(name), Present::default(), "{name}");
        }
    }
}
