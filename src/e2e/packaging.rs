//! What is in packaging/ fits what is built: files that are named exist, and what can be checked here is.

use std::path::Path;
use std::process::Command;

use crate::testing::PATIENCE;
use crate::testing::process::Process;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The words of the values of a unit's key.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    let prefix = format!("{key}=");
    unit.lines().filter_map(|line| line.strip_prefix(&prefix)).flat_map(str::split_whitespace).collect()
}

#[tokio::test]
async fn the_packaged_configuration_is_right() {
    let args = ["check", "packaging/ferrio.properties"];
    let mut process = Process::start(Path::new(env!("CARGO_BIN_EXE_ferrio")), &args, root(), &[]);
    assert!(process.wait(PATIENCE).await.success(), "{}", process.said());
}

#[test]
fn the_unit_is_hardened_and_fits_the_program() {
    let unit = read("packaging/ferrio.service");
    assert_eq!(values(&unit, "Type"), ["notify"]);
    assert_eq!(values(&unit, "CapabilityBoundingSet"), ["CAP_NET_BIND_SERVICE"]);
    for key in
        ["NoNewPrivileges", "DynamicUser", "PrivateTmp", "ProtectHome", "MemoryDenyWriteExecute", "LockPersonality"]
    {
        assert_eq!(values(&unit, key), ["yes"], "{key}");
    }
    // The addresses that systemd opens are those that the packaged configuration names.
    let (socket, properties) = (read("packaging/ferrio.socket"), read("packaging/ferrio.properties"));
    let addresses: Vec<&str> =
        properties.lines().filter_map(|line| line.split_once("addr = ")).map(|(_, a)| a).collect();
    for address in values(&socket, "ListenStream") {
        let wanted = if address.contains(':') { address.to_owned() } else { format!(":{address}") };
        assert!(addresses.contains(&wanted.as_str()), "{wanted} is not in {addresses:?}");
    }
    // Where systemd is: its own check, with the program that is there.
    let Ok(dir) = tempfile::tempdir() else { return };
    let path = dir.path().join("ferrio.service");
    let here = unit.replace("/usr/bin/ferrio", env!("CARGO_BIN_EXE_ferrio"));
    std::fs::write(&path, here).expect("an own directory");
    if let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&path).output() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let ours: Vec<&str> =
            said.lines().filter(|line| line.contains("ferrio.service") && line.contains("nknown")).collect();
        assert!(ours.is_empty(), "{said}");
    }
}

#[test]
fn files_that_packages_name_exist() {
    let manifest = read("Cargo.toml");
    let assets = manifest.split("assets = [").nth(1).and_then(|rest| rest.split("\n]").next()).expect("assets");
    let mut seen = 0;
    for line in assets.lines().filter_map(|line| line.trim().strip_prefix("[\"")) {
        let file = line.split('"').next().unwrap_or_default();
        seen += 1;
        assert!(file.starts_with("target/") || root().join(file).exists(), "{file}");
    }
    assert!(seen >= 8, "{seen}");
    for script in ["packaging/postinst", "packaging/prerm", "packaging/postrm"] {
        let status = Command::new("sh").arg("-n").arg(root().join(script)).status().expect("a shell");
        assert!(status.success(), "{script}");
    }
}

/// The image is what `scripts/package image` makes: the same files, by the same script.
#[test]
fn the_container_file_uses_the_script() {
    let file = read("packaging/Dockerfile");
    assert!(file.contains("RUN scripts/package binary"));
    let copied: Vec<&str> = file.lines().filter_map(|line| line.strip_prefix("COPY --from=build ")).collect();
    let script = read("scripts/package");
    for line in copied {
        let to = line.split_whitespace().nth(1).expect("a destination").trim_start_matches('/');
        let folder = Path::new(to).parent().map_or("", |parent| parent.to_str().unwrap_or_default());
        assert!(script.contains(&format!("$root/{to}")) || script.contains(&format!("$root/{folder}/")), "{to}");
    }
    assert!(file.contains("target/package/ferrio") && script.contains("$OUT/ferrio"));
}
