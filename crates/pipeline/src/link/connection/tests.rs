//! Tests of the end of a connection, with a fake owner in place of the node.

use std::sync::Mutex;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use super::*;
use crate::batch::Batch;
use crate::config::Config;
use crate::link::Counters;
use crate::wire::Protocol;

/// An owner without groups, which records the end of its connection.
#[derive(Debug)]
struct FakeOwner {
    name: Arc<str>,
    config: Config,
    counters: Counters,
    /// The answers to `may_close`, popped from the end.
    may_close: Mutex<Vec<bool>>,
    /// The result of every turn.
    close: Option<CloseReason>,
    detached: Mutex<Option<Arc<str>>>,
}

impl LinkOwner for Arc<FakeOwner> {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn config(&self) -> &Config {
        &self.config
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn take_groups(
        &self,
        _turn: &LinkReport<'_>,
        _groups: &mut Vec<CallGroup>,
    ) -> Result<(), CloseReason> {
        self.close.map_or(Ok(()), Err)
    }

    fn report(&self, _link: LinkId, event: LinkEvent) {
        panic!("nothing is owed, so {event:?} cannot happen");
    }

    fn may_close(&self, _link: LinkId) -> bool {
        self.may_close
            .lock()
            .unwrap()
            .pop()
            .expect("the host is asked no more often than expected")
    }

    fn add_left_behind(&self, batch: Batch) {
        panic!("nothing is owed, so {batch:?} cannot be left");
    }

    fn detach(&self, _link: LinkId, reason: &Arc<str>) {
        *self.detached.lock().unwrap() = Some(Arc::clone(reason));
    }

    fn on_runtime_end(&self, link: LinkId, reason: &Arc<str>) {
        self.detach(link, reason);
    }
}

fn host(may_close: &[bool], close: Option<CloseReason>) -> Arc<FakeOwner> {
    let config = Config::single("127.0.0.1:1".parse().unwrap());
    let may_close = Mutex::new(may_close.to_vec());
    let counters = Counters::default();
    Arc::new(FakeOwner {
        name: "node".into(),
        config,
        counters,
        may_close,
        close,
        detached: Mutex::default(),
    })
}

fn connect(host: Arc<FakeOwner>) -> (Connection<Arc<FakeOwner>>, UnixStream) {
    let (ours, servers) = UnixStream::pair().unwrap();
    let ready = ReadySocket::new(Socket::Unix(ours), Protocol::Resp2);
    (Connection::new(host, LinkId(0), ready), servers)
}

/// Returns the reason of the end of a connection after the server sends `bytes` and closes.
async fn end_after(bytes: &[u8]) -> String {
    let (mut connection, mut server) = connect(host(&[], None));
    server.write_all(bytes).await.unwrap();
    drop(server);
    connection.serve().await
}

#[tokio::test]
async fn a_server_that_closes_or_errs_ends_the_connection() {
    assert_eq!(end_after(b"").await, "closed by the server");
    assert_eq!(end_after(b":1").await, "closed by the server");
    assert!(
        end_after(b":1\r\n")
            .await
            .starts_with("a reply that no command asked for")
    );
    assert!(end_after(b"?\r\n").await.starts_with("malformed reply"));
}

#[tokio::test]
async fn a_host_closes_the_connection_by_its_reason() {
    for (reason, text) in [
        (CloseReason::Retired, "replaced"),
        (
            CloseReason::Abandoned,
            "silent while the server answers others",
        ),
    ] {
        let (mut connection, _server) = connect(host(&[], Some(reason)));
        assert_eq!(connection.serve().await, text);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_closes_when_the_host_needs_it_no_more() {
    let host = host(&[true, false, false], None);
    let (mut connection, _server) = connect(Arc::clone(&host));
    assert_eq!(connection.serve().await, "idle for 60s");
    assert!(
        host.may_close.lock().unwrap().is_empty(),
        "the host is asked again after each idle timeout"
    );
}

#[tokio::test]
async fn a_task_that_is_stopped_leaves_its_host() {
    let host = host(&[], None);
    let (connection, _server) = connect(Arc::clone(&host));
    drop(connection);
    assert_eq!(
        host.detached.lock().unwrap().as_deref(),
        Some("its task was stopped")
    );
}
