//! `store` and `import`, which open the store themselves: a file, or Redis.

mod repair;

use serde_json::json;
use tidegate_pipeline::test_util::RedisServer;

use super::*;
use crate::support::{await_that, repository};
use crate::workflows::redis;

/// A store without a server, and what tells the program where it is.
struct Store {
    folder: TempDir,
    redis: Option<RedisServer>,
}

impl Store {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = binary(arguments);
        command.env("TIDEGATE_DATA_DIR", self.folder.path());
        if let Some(redis) = &self.redis {
            command
                .env("REDIS_URL", redis.address().to_string())
                .env("REDIS_SOCKET_TYPE", "tcp");
        }
        command
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        run(&mut self.command(&in_json(arguments)))
    }

    /// A server of it.
    fn serve(&self) -> Flows {
        let folder = self.folder.path().to_str().unwrap();
        let redis = self.redis.as_ref();
        let url = redis.map(|redis| redis.address().to_string());
        let mut settings = vec![("TIDEGATE_DATA_DIR", folder)];
        if let Some(url) = &url {
            settings.extend([("REDIS_URL", url.as_str()), ("REDIS_SOCKET_TYPE", "tcp")]);
        }
        Flows::start(&settings)
    }

    /// Does something to the file behind the back of all.
    fn sql(&self, statement: &str) {
        let file = rusqlite::Connection::open(self.folder.path().join("workflows.db")).unwrap();
        file.execute_batch(statement).unwrap();
    }

    /// Runs a script in its Redis, behind the back of all.
    fn lua(&self, script: &str) -> String {
        self.redis
            .as_ref()
            .unwrap()
            .raw(&format!("EVAL \"{script}\" 0"))
    }
}

/// A store with a finished, a failed and a running workflow.
fn with_workflows(redis: Option<RedisServer>) -> Store {
    let folder = tempfile::tempdir().unwrap();
    fill(Store { folder, redis })
}

/// The same in the made-up format 0, which servers in tests know.
fn in_format_0(redis: Option<RedisServer>) -> Store {
    let folder = tempfile::tempdir().unwrap();
    let store = Store { folder, redis };
    // The first call makes the store.
    let flows = store.serve();
    flows.get("/v1/workflows");
    flows.server.stop();
    if store.redis.is_some() {
        store.lua("return redis.call('HSET', 'tg:meta', 'schema', 0)");
    } else {
        store.sql("PRAGMA user_version = 0");
    }
    fill(store)
}

fn fill(store: Store) -> Store {
    let flows = store.serve();
    flows.create(workflow("done", "a b<a"));
    failing(&flows);
    work(&flows);
    let mut body = workflow("waits", "a b<a");
    (body["tags"], body["idempotency_key"]) = (json!(["t"]), json!("k"));
    flows.create(body);
    flows.server.stop();
    store
}

/// A store of each kind.
fn filled() -> [Store; 2] {
    [None, Some(redis())].map(with_workflows)
}

#[test]
fn a_good_store_is_clean_and_up_to_date() {
    for store in filled() {
        let checked = store.run(&["store", "check"]).expect(DONE).json();
        assert_eq!(
            (&checked["workflows"], &checked["findings"]),
            (&3.into(), &json!([]))
        );
        assert!(checked["rows"].as_u64().unwrap() > 3);
        store
            .run(&["store", "check", "-o", "table"])
            .expect(DONE)
            .says("ok: 3 workflows and ");
        let info = store.run(&["store", "info"]).expect(DONE).json();
        assert_eq!(
            (
                &info["workflows"]["failed"],
                &info["ready_jobs"],
                &info["schema"]
            ),
            (&1.into(), &1.into(), &1.into())
        );
        let (partitions, file) = if store.redis.is_some() {
            (16, false)
        } else {
            (4, true)
        };
        assert_eq!(
            (&info["partitions"], info["file"].is_object()),
            (&partitions.into(), file)
        );
        let told = store
            .run(&["store", "info", "-o", "table"])
            .expect(DONE)
            .says(&format!("partitions  {partitions}"));
        assert_eq!(
            (
                told.out.contains(" bytes, of which "),
                told.out.contains("compact")
            ),
            (file, false)
        );
        for migrate in [&["store", "migrate"][..], &["migrate"]] {
            assert_eq!(store.run(migrate).expect(DONE).json()["migrated"], false);
        }
    }
}

#[test]
fn a_file_of_an_earlier_version_is_compacted() {
    let store = Store {
        folder: tempfile::tempdir().unwrap(),
        redis: None,
    };
    store.run(&["store", "compact"]).expect(NOT_FOUND);
    store.sql(&std::fs::read_to_string(repository().join("golden/stores/1-sqlite.sql")).unwrap());
    let gives_back =
        || store.run(&["store", "info"]).expect(DONE).json()["file"]["gives_back"].clone();
    assert_eq!(gives_back(), false);
    store
        .run(&["store", "info", "-o", "table"])
        .expect(DONE)
        .says("see `tidegate store compact`");
    let told = store.run(&["store", "compact"]).expect(DONE).json();
    // It has a page more, which says where the others are.
    let sizes = ["bytes_before", "bytes"].map(|name| told[name].as_u64().unwrap());
    assert!(sizes[1] <= sizes[0] + 4_096, "{told}");
    assert_eq!(gives_back(), true);
    store.run(&["store", "check"]).expect(DONE);
    let flows = Flows::start(&[("TIDEGATE_DATA_DIR", store.folder.path().to_str().unwrap())]);
    store
        .run(&["store", "compact"])
        .expect(UNAVAILABLE)
        .says("in use by process");
    flows.server.stop();
    let redis = Store {
        folder: tempfile::tempdir().unwrap(),
        redis: Some(redis()),
    };
    redis.run(&["store", "compact"]).expect(USAGE);
}

#[test]
fn the_store_is_where_the_server_has_it() {
    let (counters, store) = (redis(), redis());
    let (count, keep) = (counters.address().to_string(), store.address().to_string());
    let settings = [
        ("REDIS_URL", &*count),
        ("TIDEGATE_STORE_URL", &*keep),
        ("TIDEGATE_STORE_PREFIX", "prod:"),
    ];
    let flows = Flows::start(&settings);
    flows.create(workflow("w", "a"));
    let told = |verb: &str| run(binary(&in_json(&["store", verb])).envs(settings));
    let info = told("info").expect(DONE).json();
    assert_eq!(
        (&info["store"], &info["workflows"]["running"]),
        (&json!(format!("redis at {keep}, prefix prod:")), &json!(1))
    );
    assert_eq!(told("check").expect(DONE).json()["workflows"], 1);
    run(binary(&["store", "backup", "there"]).envs(settings))
        .expect(USAGE)
        .says("BGSAVE");
    let elsewhere = [
        ("REDIS_URL", &*count),
        ("TIDEGATE_STORE_URL", &*keep),
        ("TIDEGATE_STORE_PREFIX", "other:"),
    ];
    for verb in [
        &["info"][..],
        &["check"],
        &["check", "--repair"],
        &["migrate", "--yes"],
    ] {
        let asked = run(binary(&["store"]).args(verb).envs(elsewhere));
        asked
            .expect(NOT_FOUND)
            .says("there is no store at")
            .says("TIDEGATE_STORE_PREFIX");
    }
    assert!(
        !store.raw("KEYS *").contains("other:"),
        "looking makes nothing"
    );
}

/// A server that was to be stopped had written after the migration. That was never found.
#[test]
fn what_is_written_in_an_earlier_format_after_a_migration_is_found() {
    let store = in_format_0(Some(redis()));
    store.lua("return redis.call('HSET', 'tg:meta', 'schema', 1)");
    let earlier = || {
        store.run(&["store", "info"]).expect(DONE).json()["earlier_workflows"]
            .as_u64()
            .unwrap()
    };
    let all = earlier();
    assert!(all > 0);
    store
        .run(&["store", "migrate"])
        .expect(REFUSED)
        .says("then use --yes");
    let told = store
        .run(&["store", "migrate", "--yes"])
        .expect(DONE)
        .json();
    assert_eq!(
        (&told["migrated"], &told["rewritten"]),
        (&json!(true), &json!(all))
    );
    assert_eq!(earlier(), 0);
    store.run(&["store", "check"]).expect(DONE);
}

/// Nothing could change the schema of a store: it kept the one that it was made with.
#[test]
fn an_older_store_is_migrated_beside_a_server() {
    let [file, other] = [None, Some(redis())].map(in_format_0);
    let flows = Flows::on(other.redis.as_ref().unwrap());
    other
        .run(&["store", "migrate"])
        .expect(REFUSED)
        .says("then use --yes");
    // A server of an earlier version says that it lives, as this one does.
    let servers = || {
        other.run(&["store", "info"]).expect(DONE).json()["servers"]
            .as_array()
            .unwrap()
            .len()
    };
    await_that("the server is seen", || servers() == 1);
    let tell = "local k = redis.call('KEYS', 'tg:*:sv')[1] local v = redis.call('HVALS', k)[1]";
    let ours = tidegate::VERSION;
    let told = other.lua(&format!(
        "{tell} redis.call('HSET', k, '0123456789abcdef', (v:gsub('{}', '0.0.1'))) return v",
        ours.replace('.', "%.").replace('+', "%+")
    ));
    assert!(told.contains(ours), "{told}");
    other
        .run(&["store", "migrate", "--yes"])
        .expect(REFUSED)
        .says("servers of other versions")
        .says("version 0.0.1 at ");
    other.lua("return redis.call('HDEL', redis.call('KEYS', 'tg:*:sv')[1], '0123456789abcdef')");
    for store in [&file, &other] {
        migrate(store);
    }
    // The server goes on, in the new format.
    let id = flows.create(workflow("new", "a"));
    let mark = other.lua(&format!(
        "return string.byte(redis.call('GET', redis.call('KEYS', 'tg:*:s:{id}')[1]))"
    ));
    assert_eq!(mark.trim(), ":129");
}

/// Migrates a store of format 0 and checks what is said about it before and after.
fn migrate(store: &Store) {
    let info = store.run(&["store", "info"]).expect(DONE).json();
    let all = info["earlier_workflows"].as_u64().unwrap();
    assert!(info["schema"] == 0 && all > 0, "{info}");
    store
        .run(&["store", "info", "-o", "table"])
        .expect(DONE)
        .says("0; ")
        .says("in an earlier format");
    let told = store
        .run(&["store", "migrate", "--yes"])
        .expect(DONE)
        .json();
    assert_eq!(
        (&told["migrated"], &told["schema"], &told["rewritten"]),
        (&json!(true), &json!(1), &json!(all))
    );
    let info = store.run(&["store", "info"]).expect(DONE).json();
    assert_eq!(
        (&info["schema"], &info["earlier_workflows"]),
        (&json!(1), &json!(0))
    );
    store.run(&["store", "check"]).expect(DONE);
    assert_eq!(
        store.run(&["store", "migrate"]).expect(DONE).json()["migrated"],
        false
    );
}

#[test]
fn a_newer_store_is_refused() {
    let [file, redis] = filled();
    file.sql("PRAGMA user_version = 99");
    let script = "for _, k in ipairs(redis.call('KEYS', '*')) do \
        if redis.call('TYPE', k).ok == 'hash' and redis.call('HEXISTS', k, 'schema') == 1 then \
        redis.call('HSET', k, 'schema', 99) return k end end";
    let key = redis.lua(script);
    assert!(key.contains("tg:"), "{key}");
    for store in [file, redis] {
        for verb in ["migrate", "check", "info"] {
            store
                .run(&["store", verb])
                .expect(REFUSED)
                .says("schema version 99, this program knows 1");
        }
    }
}

#[test]
fn a_store_that_is_elsewhere_or_in_use_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store {
        folder,
        redis: None,
    };
    store
        .run(&["store", "check"])
        .expect(NOT_FOUND)
        .says("TIDEGATE_DATA_DIR says where to look");
    assert_eq!(
        store.folder.path().read_dir().unwrap().count(),
        0,
        "looking makes nothing"
    );
    let flows = Flows::start(&[("TIDEGATE_DATA_DIR", store.folder.path().to_str().unwrap())]);
    // The first call makes it.
    flows.get("/v1/workflows");
    store
        .run(&["store", "check"])
        .expect(UNAVAILABLE)
        .says("in use by process");
    drop(flows);
    run(binary(&["store", "info"]).env("TIDEGATE_PARTITIONS", "x"))
        .expect(USAGE)
        .says("TIDEGATE_PARTITIONS");
    store
        .run(&["store", "info", "--server", "x"])
        .expect(USAGE)
        .says("this command asks no server");
}

#[test]
fn a_file_is_copied_while_a_server_has_it_and_opened_by_another() {
    let store = with_workflows(None);
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("workflows.db");
    let backup = ["store", "backup", copy.to_str().unwrap()];
    {
        let flows = Flows::start(&[("TIDEGATE_DATA_DIR", store.folder.path().to_str().unwrap())]);
        flows.create(workflow("late", "a"));
        let told = store.run(&backup).expect(DONE).json();
        assert_eq!(told["bytes"], std::fs::metadata(&copy).unwrap().len());
        store
            .run(&backup)
            .expect(REFUSED)
            .says("exists: name a new file");
        flows.create(workflow("later", "a"));
    }
    let flows = Flows::start(&[("TIDEGATE_DATA_DIR", elsewhere.path().to_str().unwrap())]);
    let listed = flows.get("/v1/workflows").to_string();
    assert!(
        ["done", "waits", "late"]
            .iter()
            .all(|name| listed.contains(&format!("\"name\":\"{name}\""))),
        "{listed}"
    );
    assert!(!listed.contains("later"), "{listed}");
    flows.server.stop();
    let copied = Store {
        folder: elsewhere,
        redis: None,
    };
    copied.run(&["store", "check"]).expect(DONE);
    let nothing = Store {
        folder: tempfile::tempdir().unwrap(),
        redis: None,
    };
    nothing
        .run(&["store", "backup", "there"])
        .expect(NOT_FOUND)
        .says("there is no store");
    let redis = Store {
        folder: tempfile::tempdir().unwrap(),
        redis: Some(redis()),
    };
    redis
        .run(&["store", "backup", "there"])
        .expect(USAGE)
        .says("BGSAVE");
}

#[test]
fn gushs_workflows_are_taken_over_once() {
    let folder = repository().join("golden/gush").canonicalize().unwrap();
    let told: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("gush-5.0.json")).unwrap())
            .unwrap();
    let number = told["workflows"].as_array().unwrap().len();
    let folder = folder.to_str().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let gush = runtime.block_on(RedisServer::start_with(&[
        "--dir",
        folder,
        "--dbfilename",
        "gush-5.0.rdb",
    ]));
    let url = format!("redis://{}", gush.address());
    for redis in [None, Some(redis())] {
        let store = Store {
            folder: tempfile::tempdir().unwrap(),
            redis,
        };
        let import = |more: &[&str]| {
            store
                .run(&[&["import", "gush", "--redis", &url], more].concat())
                .expect(DONE)
        };
        let dry = import(&["--dry-run"]).json();
        assert_eq!(
            (&dry["created"], &dry["dry_run"], &dry["left"]),
            (&number.into(), &true.into(), &json!([]))
        );
        let first = import(&[]).json();
        assert_eq!(
            (&first["created"], &first["existing"]),
            (&number.into(), &0.into()),
            "the dry run took nothing"
        );
        let before = store.run(&["store", "info"]).expect(DONE);
        let again = import(&[]).json();
        assert_eq!(
            (&again["created"], &again["existing"]),
            (&0.into(), &number.into())
        );
        assert_eq!(store.run(&["store", "info"]), before);
        store.run(&["store", "check"]).expect(DONE);
        import(&["-o", "table"]).says(&format!("{number} exist from an earlier import"));
    }
    run(&mut binary(&[
        "import",
        "gush",
        "--redis",
        "redis://127.0.0.1:1",
        "--dry-run",
    ]))
    .expect(UNAVAILABLE)
    .says("127.0.0.1:1");
    run(&mut binary(&["import", "gush"]))
        .expect(USAGE)
        .says("--redis <URL>");
}
