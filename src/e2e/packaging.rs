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

/// What the examples for Nomad and Compose hand to ferrio is understood by it.
#[tokio::test]
async fn the_examples_are_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = async |args: &[&str]| {
        let args = [&["check", "--text"], args].concat();
        let mut process = Process::start(Path::new(env!("CARGO_BIN_EXE_ferrio")), &args, dir.path(), &[]);
        assert!(process.wait(PATIENCE).await.success(), "{args:?}: {}", process.said());
        process.said()
    };
    let job = read("packaging/ferrio.nomad.hcl");
    let lines = job.split("<<-EOF\n").nth(1).and_then(|rest| rest.split("EOF").next()).expect("a template");
    let text: String = lines.lines().map(|line| format!("{}\n", line.trim())).collect();
    // Nomad fills this in.
    let text = text.replace(r#"{{ env "attr.unique.network.ip-address" }}"#, "10.0.0.1");
    assert!(text.lines().count() >= 5 && !text.contains("{{"), "{text}");
    std::fs::write(dir.path().join("job.properties"), text).expect("an own directory");
    let said = check(&["job.properties"]).await;
    assert!(!said.contains("unknown option"), "{said}");

    let compose = read("packaging/compose.yml");
    let command = compose.lines().find_map(|line| line.trim().strip_prefix("command: [")).expect("a command");
    let flags: Vec<&str> = command.trim_end_matches(']').split(',').map(|flag| flag.trim().trim_matches('"')).collect();
    assert!(flags.iter().all(|flag| flag.starts_with('-')), "{flags:?}");
    check(&[&["--"], &flags[..]].concat()).await;
    let service: serde_json::Value = {
        let text = compose.split("content: |\n").nth(1).expect("a service");
        serde_json::from_str(text).expect("JSON")
    };
    assert_eq!(service["service"]["tags"][0], "urlprefix-/hello");
}

/// Builds it, as `scripts/package deb` says.
#[test]
#[ignore = "builds a package; scripts/check packages does it"]
fn the_debian_package_has_what_it_promises() {
    let out = tempfile::tempdir().expect("a directory");
    let package = packaged("deb").into_iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package.expect("a package");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(out.path()));
    run(Command::new("dpkg-deb").arg("-e").arg(&package).arg(out.path().join("DEBIAN")));
    let at = |name: &str| out.path().join(name);
    for (file, mode) in [
        ("usr/bin/ferrio", 0o755),
        ("etc/ferrio/ferrio.properties", 0o644),
        ("usr/lib/systemd/system/ferrio.service", 0o644),
        ("usr/share/man/man1/ferrio.1.gz", 0o644),
        ("usr/share/bash-completion/completions/ferrio", 0o644),
        ("usr/share/zsh/vendor-completions/_ferrio", 0o644),
        ("usr/share/fish/vendor_completions.d/ferrio.fish", 0o644),
        ("usr/share/doc/ferrio/fabio.properties", 0o644),
        ("usr/share/doc/ferrio/copyright", 0o644),
        ("usr/share/doc/ferrio/examples/alerts.yml", 0o644),
        ("usr/share/doc/ferrio/examples/dashboard.json", 0o644),
        ("DEBIAN/postinst", 0o755),
        ("DEBIAN/prerm", 0o755),
        ("DEBIAN/postrm", 0o755),
    ] {
        use std::os::unix::fs::PermissionsExt;
        let meta = std::fs::metadata(at(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert_eq!(meta.permissions().mode() & 0o777, mode, "{file}");
        assert!(meta.len() > 0, "{file} is empty");
    }
    let text = |name: &str| std::fs::read_to_string(at(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(text("DEBIAN/conffiles").contains("/etc/ferrio/ferrio.properties"));
    let control = text("DEBIAN/control");
    assert!(control.contains("Package: ferrio\n") && control.contains("Depends: libc6"), "{control}");
    // The unit starts the file that is in the package, with the configuration that is in it.
    let unit = text("usr/lib/systemd/system/ferrio.service");
    let start = values(&unit, "ExecStart");
    assert!(at(start[0].trim_start_matches('/')).exists(), "{start:?}");
    let ferrio = at("usr/bin/ferrio");
    run(Command::new(&ferrio).arg("-v"));
    run(Command::new(&ferrio).args(["check", "--text"]).arg(at("etc/ferrio/ferrio.properties")));
    run(Command::new("gzip").arg("-t").arg(at("usr/share/man/man1/ferrio.1.gz")));
    run(Command::new("bash").arg("-n").arg(at("usr/share/bash-completion/completions/ferrio")));
}

/// The steps of the container file, without Docker.
#[test]
#[ignore = "builds a static binary; scripts/check packages does it"]
fn the_image_is_one_static_binary_and_certificates() {
    packaged("image");
    let image = out().join("image");
    run(Command::new(image.join("ferrio")).arg("-v"));
    assert!(image.join("etc/ssl/certs/ca-certificates.crt").exists());
    let binary = std::fs::read(image.join("ferrio")).expect("a binary");
    // A program header of type 3 (PT_INTERP) names the dynamic loader.
    let number = |at: usize, width: usize| binary[at..at + width].iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
    let (start, size, count) = (number(0x20, 8), number(0x36, 2), number(0x38, 2));
    assert!(count > 0 && (0..count).all(|header| number(start + header * size, 4) != 3), "it needs a loader");
}

/// What `scripts/package WHAT` has left, with the profile of the tests.
fn packaged(what: &str) -> Vec<std::path::PathBuf> {
    let before = std::fs::read_dir(out()).into_iter().flatten().flatten();
    for old in before.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "deb")) {
        std::fs::remove_file(old).expect("an own file");
    }
    run(Command::new(root().join("scripts/package")).arg(what).env("FERRIO_PROFILE", "dev").current_dir(root()));
    std::fs::read_dir(out()).expect("a folder").flatten().map(|entry| entry.path()).collect()
}

fn out() -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), Into::into).join("package")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}
