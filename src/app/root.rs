//! A word about running as root.

use std::time::Duration;

/// Says so at once and then every hour, as long as the process runs. `insecure` (the flag) says that it is meant.
pub(super) async fn remind(insecure: bool) {
    let user = rustix::process::getuid();
    if !user.is_root() {
        return;
    }
    let (effective, group) = (rustix::process::geteuid(), rustix::process::getgid());
    loop {
        tracing::info!("Running as UID={} EUID={} GID={}", user.as_raw(), effective.as_raw(), group.as_raw());
        if insecure {
            tracing::warn!("Running as root, as -insecure says");
        } else {
            tracing::warn!(
                "Running as root. Set runtime.user to give that up once the ports are bound, or start as another user with the \
                 capability CAP_NET_BIND_SERVICE (systemd: AmbientCapabilities=, else setcap cap_net_bind_service=+ep); if \
                 root is meant, say so with -insecure"
            );
        }
        tokio::time::sleep(HOUR).await;
    }
}

const HOUR: Duration = Duration::from_secs(3600);
