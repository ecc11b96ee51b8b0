//! Which names we are called by. A page of another site can have its own name lead to our address (DNS rebinding); its
//! requests are then ours by every other sign, except that they name that site as the host.

/// Whether nobody outside can own the name in this Host header: addresses, names without a dot or below domains that are
/// never delegated, and `configured` names (`*.example.com` stands for all below).
pub(super) fn is_known(host: &str, configured: &[String]) -> bool {
    let name = without_port(host).to_ascii_lowercase();
    let name = name.trim_end_matches('.');
    if name.is_empty() || host.starts_with('[') || name.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    if !name.contains('.') || PRIVATE.iter().any(|domain| name.ends_with(domain)) {
        return true;
    }
    is_listed(name, configured)
}

/// With `ui.hosts`: the names in it and addresses, nothing else.
pub(super) fn is_allowed(host: &str, configured: &[String]) -> bool {
    let name = without_port(host).to_ascii_lowercase();
    host.starts_with('[')
        || name.parse::<std::net::IpAddr>().is_ok()
        || is_listed(name.trim_end_matches('.'), configured)
}

fn is_listed(name: &str, configured: &[String]) -> bool {
    configured.iter().any(|pattern| match pattern.strip_prefix('*') {
        Some(domain) => name.ends_with(&domain.to_ascii_lowercase()),
        None => name == pattern.to_ascii_lowercase(),
    })
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Names that the public DNS never has (RFC 6761, RFC 6762, RFC 8375, ICANN's `.internal`), and Consul's own.
const PRIVATE: &[&str] = &[".localhost", ".local", ".internal", ".test", ".home.arpa", ".consul"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_cannot_be_somebody_elses() {
        let configured = ["lb.example.com".to_owned(), "*.ops.example.com".to_owned()];
        for (host, want) in [
            ("127.0.0.1:9998", true),
            ("[::1]:9998", true),
            ("::1", true),
            ("localhost:9998", true),
            ("lb1", true),
            ("lb1:9998", true),
            ("fabio.service.consul:9998", true),
            ("fabio.service.CONSUL.", true),
            ("lb.example.com", true),
            ("LB.example.com:9998", true),
            ("a.ops.example.com", true),
            ("ops.example.com", false),
            ("evil.com:9998", false),
            ("lb.example.com.evil.com", false),
            ("consul.evil.com", false),
            ("127.0.0.1.evil.com", false),
            ("", true),
        ] {
            assert_eq!(is_known(host, &configured), want, "{host}");
        }
        assert!(!is_known("lb.example.com", &[]));
        for (host, want) in [("10.0.0.1:9998", true), ("LB.example.com:1", true), ("lb1", false), ("a.consul", false)] {
            assert_eq!(is_allowed(host, &configured), want, "{host}");
        }
    }
}
