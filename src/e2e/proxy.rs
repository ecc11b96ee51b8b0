//! The program under test with one listener for traffic and one for the admin pages, as most tests want it.

use std::net::SocketAddr;

use crate::testing::client::{self, Client, Response};
use crate::testing::consul::Consul;
use crate::testing::ferrio::{Ferrio, Setup};
use crate::testing::process::Signal;
use crate::testing::{PATIENCE, free_addrs, until};

/// What to start. In values, `ADDR`, `ADMIN` and `MORE` stand for addresses with free ports.
pub(crate) struct Start {
    properties: Vec<(String, String)>,
    files: Vec<(String, String)>,
}

/// A running one.
pub(crate) struct Proxy {
    pub(crate) ferrio: Ferrio,
    pub(crate) addr: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// Another one for listeners that a test adds.
    pub(crate) more: SocketAddr,
}

impl Start {
    /// With these lines as its routes, from a file.
    pub(crate) fn routes(text: impl Into<String>) -> Start {
        let start = Start { properties: vec![], files: vec![(ROUTES.to_owned(), text.into())] };
        start.property("registry.backend", "file").property("registry.file.path", ROUTES)
    }

    /// With its routes from this Consul, where it does not register itself unless told to.
    pub(crate) fn consul(consul: &Consul) -> Start {
        Start::consul_at(consul.addr())
    }

    pub(crate) fn consul_at(addr: SocketAddr) -> Start {
        let start = Start { properties: vec![], files: vec![] };
        start.property("registry.consul.addr", addr).property("registry.consul.register.enabled", false)
    }

    /// Set last wins.
    pub(crate) fn property(mut self, key: &str, value: impl ToString) -> Start {
        self.properties.retain(|(known, _)| known != key);
        self.properties.push((key.to_owned(), value.to_string()));
        self
    }

    /// A file in its working directory.
    pub(crate) fn file(mut self, name: &str, text: &str) -> Start {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// One worker: requests in a row meet the same pool of connections.
    pub(crate) fn one_worker(self) -> Start {
        self.property("runtime.gomaxprocs", 1)
    }

    /// Starts it without waiting for anything.
    pub(crate) fn spawn(&self) -> Proxy {
        let [addr, admin, more] = free_addrs();
        let mut setup = Setup::new(env!("CARGO_BIN_EXE_ferrio"));
        let defaults = [("proxy.addr", "ADDR"), ("ui.addr", "ADMIN")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let set = |key: &str| self.properties.iter().any(|(known, _)| known == key);
        for (key, value) in defaults.iter().filter(|(key, _)| !set(key)).chain(&self.properties) {
            let value = value.replace("ADDR", &addr.to_string()).replace("ADMIN", &admin.to_string());
            setup = setup.property(key, value.replace("MORE", &more.to_string()));
        }
        for (name, text) in &self.files {
            setup = setup.file(name, text);
        }
        Proxy { ferrio: setup.spawn(), addr, admin, more }
    }

    /// Starts it and waits until every listener accepts.
    pub(crate) async fn start(self) -> Proxy {
        loop {
            let mut proxy = self.spawn();
            match proxy.ferrio.try_listening().await {
                Ok(()) => return proxy,
                // A port that was free a moment ago; the next ones are.
                Err(ended) if ended.contains("in use") => {}
                Err(ended) => panic!("{ended}"),
            }
        }
    }
}

impl Proxy {
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.addr).await
    }

    /// One GET on a connection of its own.
    pub(crate) async fn get(&self, host: &str, target: &str) -> Response {
        client::get(self.addr, host, target).await
    }

    /// These bytes on a connection of their own, and the answer.
    pub(crate) async fn raw(&self, bytes: impl AsRef<[u8]>) -> Response {
        let mut client = self.client().await;
        let method = String::from_utf8_lossy(bytes.as_ref()).split(' ').next().unwrap_or_default().to_owned();
        client.send(bytes).await;
        client.response_to(&method).await
    }

    pub(crate) async fn status(&self, bytes: impl AsRef<[u8]>) -> u16 {
        self.raw(bytes).await.status
    }

    /// Other routes, for one that has them from a file.
    pub(crate) fn set_routes(&self, text: &str) {
        std::fs::write(self.ferrio.dir().join(ROUTES), text).expect("a file in an own directory");
    }

    /// Waits until a GET for this host and target is answered with this body.
    pub(crate) async fn serves(&self, host: &str, target: &str, body: &str) {
        until(PATIENCE, &format!("{body:?} at {host}{target}"), async || {
            let response = self.get(host, target).await;
            (response.status == 200 && response.text() == body).then_some(())
        })
        .await;
    }

    /// Waits until a GET for this host and target has this status.
    pub(crate) async fn answers(&self, host: &str, target: &str, status: u16) {
        until(PATIENCE, &format!("{status} at {host}{target}"), async || {
            (self.get(host, target).await.status == status).then_some(())
        })
        .await;
    }

    /// What the admin pages give.
    pub(crate) async fn page(&self, target: &str) -> Response {
        client::get(self.admin, "admin", target).await
    }

    /// It still runs and ends as it should; for tests that send it odd things.
    pub(crate) async fn ends_well(mut self) {
        assert_eq!(self.ferrio.stop().await, Some(0), "{}", self.ferrio.stderr());
        assert!(!self.ferrio.stderr().contains("panicked"), "{}", self.ferrio.stderr());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.ferrio.signal(signal);
    }
}

const ROUTES: &str = "routes.txt";
