//! What is damaged is found, and repaired where that is possible.

use super::*;

#[test]
fn damage_is_found_and_named() {
    let [file, redis] = filled();
    file.sql("DELETE FROM ready_row; DELETE FROM idempotency");
    // A row for all workflows becomes one for nothing that there is.
    file.sql("UPDATE index_row SET entry = CAST(x'7a' || substr(entry, 2) AS BLOB) WHERE hex(entry) LIKE '63%'");
    let found = file.run(&["store", "check"]).expect(FAILED).json();
    let all = found["findings"].to_string();
    assert!(all.contains("index row of nothing that there is"), "{all}");
    file.run(&["store", "check", "-o", "table"])
        .expect(FAILED)
        .says("WHAT IS WRONG")
        .says(" findings, ");
    // The first row of each sorted set.
    let script = "for _, k in ipairs(redis.call('KEYS', '*')) do \
        if redis.call('TYPE', k).ok == 'zset' then redis.call('ZPOPMIN', k) end end";
    let answer = redis.lua(script);
    assert!(!answer.starts_with('-'), "{answer}");
    redis
        .run(&["store", "check"])
        .expect(FAILED)
        .says("missing: ");
}

#[test]
fn what_is_missing_is_found_one_by_one() {
    for (statement, finding) in [
        (
            "DELETE FROM ready_row",
            "missing: ready row of job 0 in queue 'default'",
        ),
        (
            "DELETE FROM idempotency",
            "its idempotency key does not lead to it",
        ),
        (
            "DELETE FROM index_row WHERE hex(entry) LIKE '73%'",
            "missing: index row of a status",
        ),
        ("DELETE FROM expiry", "missing: expiry"),
        (
            "INSERT INTO timer SELECT 0, 1, id FROM workflow",
            "left over: timer",
        ),
    ] {
        let file = with_workflows(None);
        file.sql(statement);
        file.run(&["store", "check"]).expect(FAILED).says(finding);
    }
}

/// Deletes the keys of a Redis that match these patterns.
fn lose(store: &Store, patterns: &str) {
    let script = format!(
        "local n = 0 for p in string.gmatch('{patterns}', '%S+') do \
         for _, k in ipairs(redis.call('KEYS', p)) do n = n + redis.call('DEL', k) end end return n"
    );
    let answer = store.lua(&script);
    assert!(answer.starts_with(':') && answer.trim() != ":0", "{answer}");
}

/// All is as it should be, and what was not finished can be.
#[track_caller]
fn is_whole(store: &Store) {
    assert_eq!(
        store.run(&["store", "check"]).expect(DONE).json()["findings"],
        json!([])
    );
    let url = store
        .redis
        .as_ref()
        .map(|redis| redis.address().to_string());
    let mut settings = vec![("TIDEGATE_DATA_DIR", store.folder.path().to_str().unwrap())];
    settings.extend(
        url.iter()
            .flat_map(|url| [("REDIS_URL", url.as_str()), ("REDIS_SOCKET_TYPE", "tcp")]),
    );
    let flows = Flows::start(&settings);
    assert_eq!(flows.get("/v1/workflows:byKey?key=k")["name"], "waits");
    work(&flows);
    assert_eq!(
        flows.get("/v1/workflows:count")["by_status"]["succeeded"],
        2
    );
    flows.server.stop();
}

#[test]
fn what_is_lost_or_left_over_is_repaired() {
    for statements in [
        "DELETE FROM ready_row; DELETE FROM idempotency",
        "DELETE FROM index_row; DELETE FROM ready_row; DELETE FROM expiry; DELETE FROM timer",
        "INSERT INTO timer SELECT partition, 1, substr(entry, -16) FROM index_row WHERE hex(entry) LIKE '63%'; UPDATE expiry SET at = at + 1",
        "INSERT INTO ready_row SELECT partition, CAST(substr(entry, 1, length(entry) - 1) || x'01' AS BLOB) FROM ready_row",
        "UPDATE index_row SET entry = CAST(x'7a' || substr(entry, 2) AS BLOB) WHERE hex(entry) LIKE '63%'",
        "DELETE FROM workflow WHERE id = (SELECT min(id) FROM workflow)",
    ] {
        let file = with_workflows(None);
        file.sql(statements);
        let repaired = file
            .run(&["store", "check", "--repair"])
            .expect(DONE)
            .json();
        assert!(
            repaired["repaired"].as_u64().unwrap() > 0 && repaired["left"] == 0,
            "{statements}: {repaired}"
        );
        if !statements.contains("FROM workflow WHERE") {
            is_whole(&file);
        }
    }
    for patterns in ["tg:*:rq tg:*:k:*", "tg:*:ix tg:*:rq tg:*:ex"] {
        let store = with_workflows(Some(redis()));
        lose(&store, patterns);
        store
            .run(&["store", "check", "-o", "table"])
            .expect(FAILED)
            .says(" 0 repaired");
        store
            .run(&["store", "check", "--repair", "-o", "table"])
            .expect(DONE)
            .says("REPAIRED")
            .says(" yes");
        is_whole(&store);
    }
}

#[test]
fn a_store_in_redis_is_repaired_beside_its_servers() {
    let store = with_workflows(Some(redis()));
    let flows = Flows::on(store.redis.as_ref().unwrap());
    // A server that has not seen the rows before they are lost.
    lose(&store, "tg:*:rq");
    assert_eq!(flows.claim(1).len(), 0);
    let mut later = workflow("later", "a");
    later["jobs"][0]["wait"] = json!("2s");
    flows.create(later);
    lose(&store, "tg:*:tm");
    store.run(&["store", "check", "--repair"]).expect(DONE);
    let wait = json!({"queues": ["default"], "worker": "w", "limit": 1, "wait": "20s"});
    for _ in 0..2 {
        let jobs = flows.post("/v1/jobs/claim", wait.clone());
        assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    }
}

#[test]
fn what_cannot_be_repaired_is_left_and_said() {
    let store = with_workflows(Some(redis()));
    let script =
        "local k = redis.call('KEYS', 'tg:*:s:*')[1] redis.call('SET', k, 'nonsense') return k";
    let answer = store.lua(script);
    let key = answer.lines().nth(1).unwrap();
    let told = store
        .run(&["store", "check", "--repair"])
        .expect(FAILED)
        .json();
    assert_eq!(
        (&told["repaired"], &told["findings"][0]["repaired"]),
        (&0.into(), &false.into()),
        "{told}"
    );
    // By hand, as the documents say.
    for part in [":d:", ":o:", ":s:"] {
        let _ = store
            .redis
            .as_ref()
            .unwrap()
            .raw(&format!("UNLINK {}", key.replace(":s:", part)));
    }
    let told = store
        .run(&["store", "check", "--repair"])
        .expect(DONE)
        .json();
    assert!(told["repaired"].as_u64() > Some(0), "{told}");
    store.run(&["store", "check"]).expect(DONE);
}
