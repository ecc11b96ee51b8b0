//! What routes may name of the machine that the proxy runs on. A route that names anything else is refused: whoever may
//! register a service is not to read files or reach sockets that nobody has opened to them.

use std::collections::BTreeSet;

use super::{Add, Class};

/// See the module. Comes from the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Names for `cafile=`.
    pub authorities: BTreeSet<Box<str>>,
    /// Names for `clientcert=`.
    pub certificates: BTreeSet<Box<str>>,
    /// Directories, without a slash at the end, whose sockets may be targets.
    pub sockets: Vec<Box<str>>,
    /// We are a member of the service mesh (`connect=true`).
    pub connect: bool,
}

impl Known {
    /// Why this target is refused.
    pub(super) fn objection(&self, add: &Add) -> Option<String> {
        if let Some(reach) = &add.options.reach {
            for (key, name, known) in [
                ("cafile", &reach.authorities, &self.authorities),
                ("clientcert", &reach.certificate, &self.certificates),
            ] {
                if let Some(name) = name
                    && !known.contains(&**name)
                {
                    return Some(format!("{key}={name} is not known; give the file this name in proxy.targettls"));
                }
            }
        }
        let connect = add.options.reach.as_ref().is_some_and(|reach| reach.connect);
        if connect && !self.connect {
            return Some(
                "connect=true needs a name for this proxy in the mesh; set registry.consul.connect".to_owned(),
            );
        }
        if connect && (add.class() == Class::Udp || add.destination.socket.is_some()) {
            return Some("connect=true is TLS, which datagrams and Unix sockets do not have here".to_owned());
        }
        let socket = add.destination.socket.as_deref()?;
        let inside = |directory: &str| socket.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'));
        let climbs = socket.split('/').any(|part| part == "..");
        (climbs || !self.sockets.iter().any(|directory| inside(directory)))
            .then(|| format!("the socket {socket:?} is in no directory that proxy.unixsockets names"))
    }
}
