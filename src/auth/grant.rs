//! What schemes tell a target about a client.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Headers for the target. Those that belong to a scheme are never taken over from the client.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    reserved: Vec<HeaderName>,
    set: Vec<(HeaderName, HeaderValue)>,
}

impl Grant {
    /// To be called when nothing removes headers any more: a client could have them removed by naming them in `Connection`.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for name in &self.reserved {
            headers.remove(name);
        }
        for (name, value) in &self.set {
            headers.append(name, value.clone());
        }
    }

    pub(super) fn reserve(&mut self, names: &[HeaderName]) {
        self.reserved.extend_from_slice(names);
    }

    /// Of a reserved header.
    pub(super) fn set(&mut self, name: &HeaderName, value: HeaderValue) {
        self.set.push((name.clone(), value));
    }
}
