use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ferrio-state-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    fn store(&self, identity: &str) -> Store {
        let datacenters = [east(2)].into();
        Store { path: self.0.join(FILE), identity: identity.into(), max_age: Duration::from_secs(60), datacenters }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn east(rank: u32) -> Arc<Datacenter> {
    Arc::new(Datacenter { name: "east".into(), rank })
}

fn inputs() -> Inputs {
    let instance = Instance {
        service: "web".into(),
        id: "n/web-1".into(),
        datacenter: None,
        address: "10.0.0.1".into(),
        port: 80,
        tags: vec!["urlprefix-/ opts".into()],
        down: true,
        options: [("weight".to_owned(), "1".to_owned())].into(),
    };
    let there = Instance { id: "n/web-1@east".into(), datacenter: Some(east(2)), ..instance.clone() };
    Inputs {
        datacenter: "dc1".into(),
        services: [("web".into(), vec![instance].into())].into(),
        remote: [("east".into(), [("web".into(), vec![there].into())].into())].into(),
        manual: vec![("fabio/config".into(), "route del x".into())],
        page: "<p>".into(),
        named: vec![("n".into(), "a=b".into())],
        error_pages: vec![("503".into(), "busy".into())],
        disabled: vec![Disabled { service: "web".into(), ..Disabled::default() }],
    }
}

fn refusal(store: &Store) -> String {
    match store.read() {
        Err(Unusable::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_written_is_read() {
    let folder = Folder::new("same");
    let store = folder.store("a");
    assert!(matches!(store.read(), Err(Unusable::Missing)));
    store.write(&inputs()).unwrap();
    let (read, at) = store.read().unwrap();
    assert_eq!(read, inputs());
    assert!(at.elapsed().unwrap() < Duration::from_secs(50));
    assert_eq!(fs::metadata(&store.path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&folder.0).unwrap().mode() & 0o777, 0o700);
    let files: Vec<_> = fs::read_dir(&folder.0).unwrap().collect();
    assert_eq!(files.len(), 1, "no draft is left: {files:?}");
}

#[test]
fn datacenters_have_the_rank_of_now_and_others_are_left_out() {
    let folder = Folder::new("datacenters");
    folder.store("a").write(&inputs()).unwrap();
    let read = |datacenters: Vec<Arc<Datacenter>>| {
        let store = Store { datacenters: datacenters.into(), ..folder.store("a") };
        store.read().unwrap().0
    };
    assert_eq!(read(vec![east(7)]).remote["east"]["web"][0].datacenter, Some(east(7)));
    assert!(read(vec![]).remote.is_empty());
    assert_eq!(read(vec![]).services, inputs().services);
    let own = Inputs { datacenter: "east".into(), ..inputs() };
    folder.store("a").write(&own).unwrap();
    assert!(read(vec![east(1)]).remote.is_empty(), "it is our own now");
}

#[test]
fn what_cannot_be_trusted_is_refused() {
    let folder = Folder::new("refused");
    let store = folder.store("a");
    store.write(&inputs()).unwrap();
    let good = fs::read(&store.path).unwrap();
    let mut flipped = good.clone();
    *flipped.last_mut().unwrap() ^= 1;
    let body = |text: &str| format!("{MAGIC} {}\n{text}", checksum(text.as_bytes())).into_bytes();
    let port =
        r#"{"identity":"a","datacenter":"d","services":{"s":[{"id":"i","address":"h","port":70000,"tags":[]}]}}"#;
    for (name, bytes, why) in [
        ("empty", vec![], "no file of ferrio's"),
        ("something else", b"route add x / http://h/\n".to_vec(), "no file of ferrio's"),
        ("binary", vec![0xff; 5000], "no file of ferrio's"),
        ("half", good[..good.len() / 2].to_vec(), "damaged"),
        ("flipped", flipped, "damaged"),
        ("another shape", body("[1,2]"), "damaged"),
        ("a port that is none", body(port), "damaged"),
        ("of another", body(r#"{"identity":"b","datacenter":"d","services":{}}"#), "another Consul"),
    ] {
        fs::write(&store.path, bytes).unwrap();
        let reason = refusal(&store);
        assert!(reason.contains(why), "{name}: {reason}");
    }
}

#[test]
fn what_others_could_have_written_or_is_old_is_refused() {
    let folder = Folder::new("owner");
    let store = folder.store("a");
    store.write(&inputs()).unwrap();
    fs::set_permissions(&store.path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(&store).contains("may write it"));
    fs::set_permissions(&store.path, fs::Permissions::from_mode(0o600)).unwrap();
    File::open(&store.path).unwrap().set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    assert!(refusal(&store).contains("60 minutes old"));
    store.confirm().unwrap();
    assert!(store.read().is_ok());
    let elsewhere = folder.0.join("elsewhere");
    fs::rename(&store.path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &store.path).unwrap();
    refusal(&store);
}

#[test]
fn what_cannot_be_written_leaves_nothing() {
    let nowhere = Store { path: "/proc/nowhere/x".into(), ..Folder::new("nowhere").store("") };
    assert!(nowhere.write(&inputs()).is_err());
    let folder = Folder::new("large");
    let store = folder.store("a");
    let page = "x".repeat(LARGEST as usize);
    assert!(store.write(&Inputs { page, ..Inputs::default() }).is_err());
    assert!(matches!(store.read(), Err(Unusable::Missing)));
}
