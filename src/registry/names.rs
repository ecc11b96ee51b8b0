//! Names of the series of the registry.

pub(super) const SOURCE_ERRORS: &str = "registry_errors_total";
pub(super) const SOURCE_FAILING: &str = "registry_failing";
pub(super) const REJECTS: &str = "registry_rejects";
pub(super) const BUILDS: &str = "registry_updates_total";
pub(super) const BUILD_SECONDS: &str = "registry_build_seconds";
pub(super) const ROUTES: &str = "registry_routes";
pub(super) const TARGETS: &str = "registry_targets";
