#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::*;
use crate::config::{KafkaReader, SinkKind, StartAt};

const PIPELINE: &str = "name='p'\nsources=['orders']\nsink='out'\ntime={field='t'}\nwindow={size='1m'}\nvalues={n='count()'}";

const NODE: &str = r#"
data_dir = "data/1"
pipelines = ["pipelines/*.toml"]
[node]
id = 1
http = "127.0.0.1:8101"
[cluster]
peers = { 1 = "127.0.0.1:8201", 2 = "127.0.0.1:8202", 3 = "127.0.0.1:8203" }
[[source]]
name = "orders"
kafka = { brokers = "localhost:9092", topic = "orders", reader = "librdkafka", properties = { "fetch.wait.max.ms" = "100", "sasl.password" = "hunter2" } }
[[source]]
name = "dns"
files = { dir = "dns" }
[[sink]]
name = "out"
kafka = { brokers = "localhost:9092", topic = "orders_stats" }
"#;

fn parse(text: &str) -> Result<NodeConfig, ConfigErrors> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("pipelines")).unwrap();
    std::fs::write(dir.path().join("pipelines/a.toml"), PIPELINE).unwrap();
    std::fs::write(dir.path().join("pipelines/notes.txt"), "no pipeline").unwrap();
    NodeConfig::parse(&dir.path().join("unisono.toml"), text)
}

#[track_caller]
fn refused(from: &str, to: &str, expected: &str) {
    let text = NODE.replace(from, to);
    assert_ne!(text, NODE);
    let shown = parse(&text).unwrap_err().to_string();
    assert!(shown.contains(expected), "{expected}:\n{shown}");
}

#[test]
fn a_node_config_means_what_it_says() {
    let config = parse(NODE).unwrap();
    assert_eq!(config.node.id, 1);
    assert!(config.data_dir.ends_with("data/1") && config.data_dir.is_absolute());
    assert_eq!(config.cluster.peers.len(), 3);
    assert_eq!(config.cluster.heartbeat, Duration::from_millis(100));
    assert_eq!(config.cluster.tick_bytes, 8 << 20);
    assert_eq!(config.cluster.read_ahead, 64 << 20);
    assert_eq!(config.pipelines.len(), 1);
    let SourceKind::Kafka(kafka) = &config.sources[0].kind else {
        panic!("not kafka")
    };
    assert_eq!(kafka.start, StartAt::Earliest);
    assert_eq!(kafka.reader, KafkaReader::Librdkafka);
    assert_eq!(kafka.properties.get("sasl.password"), Some("hunter2"));
    let SourceKind::Files(files) = &config.sources[1].kind else {
        panic!("not files")
    };
    assert_eq!(
        (files.dir.as_str(), files.pattern.as_str()),
        ("dns", "*.ndjson")
    );
    let SinkKind::Kafka(sink) = &config.sinks[0].kind;
    assert_eq!(sink.frontier_topic, "unisono_frontier");
    assert_eq!(
        config.sources[0].canonical(),
        r#"{"version":1,"name":"orders","kind":"kafka","topic":"orders"}"#
    );
}

#[test]
fn a_password_never_shows() {
    assert!(!format!("{:?}", parse(NODE).unwrap()).contains("hunter2"));
    for text in [
        NODE.replace("\"hunter2\" }", "\"hunter2\" "),
        NODE.replace("\"hunter2\"", "\"hunter2"),
        NODE.replace("\"hunter2\"", "[\"hunter2\"]"),
        NODE.replace("properties =", "propertys ="),
        NODE.replace(
            "properties = { \"fetch",
            "properties = { \"group.id\" = \"x\", \"fetch",
        ),
    ] {
        let errors = parse(&text).unwrap_err();
        assert!(
            !format!("{errors} {errors:?}").contains("hunter2"),
            "{errors}"
        );
    }
}

#[test]
fn a_typo_names_the_nearest_right_key() {
    refused(
        "data_dir",
        "datadir",
        "datadir: unknown key; did you mean data_dir?",
    );
    refused(
        "http =",
        "htpp =",
        "node.htpp: unknown key; did you mean http?",
    );
    refused(
        "peers =",
        "peer =",
        "cluster.peer: unknown key; did you mean peers?",
    );
    refused(
        "topic = \"orders\"",
        "topik = \"orders\"",
        "source \"orders\": kafka.topik: unknown key; did you mean topic?",
    );
    refused(
        "dir = \"dns\"",
        "path = \"dns\"",
        "source \"dns\": files.path: unknown key; known here: dir, pattern",
    );
    refused(
        "[[sink]]",
        "[[sinks]]",
        "sinks: unknown key; did you mean sink?",
    );
}

#[test]
fn what_is_fixed_is_refused_with_the_reason() {
    refused(
        "\"fetch.wait.max.ms\"",
        "\"isolation.level\"",
        "source \"orders\": kafka.properties.\"isolation.level\": is fixed (read_committed",
    );
    refused(
        "[node]",
        "[node]\nstate_memory = \"4KiB\"",
        "state_memory: must be at least 1MiB",
    );
    refused(
        "topic = \"orders_stats\"",
        "topic = \"orders_stats\", properties = { \"enable.idempotence\" = false }",
        "sink \"out\": kafka.properties.\"enable.idempotence\": is fixed (true",
    );
}

#[test]
fn what_a_reader_does_not_know_is_refused_with_the_way_out() {
    refused(
        "reader = \"librdkafka\", properties = { \"fetch.wait.max.ms\" = \"100\", \"sasl.password\"",
        "properties = { \"ssl.key.password\"",
        "\"ssl.key.password\": is not known to the direct reader; remove it, or set reader = \"librdkafka\"",
    );
    // Known, but without a meaning.
    refused(
        "reader = \"librdkafka\", ",
        "",
        "\"sasl.password\": has a meaning with SASL alone; set security.protocol",
    );
    refused(
        "reader = \"librdkafka\"",
        "reader = \"java\"",
        "unisono.toml:11: source \"orders\": kafka.reader: \"java\" is neither direct nor librdkafka",
    );
}

#[test]
fn what_does_not_fit_together_is_refused() {
    refused("id = 1", "id = 4", "cluster.peers: lacks this node; add 4");
    refused(
        "id = 1",
        "id = 0",
        "node.id: 0 is out of range; write 1 to 65535",
    );
    refused("8202", "8201", "members 1 and 2 have one address");
    refused(
        "name = \"orders\"",
        "name = \"order\"",
        "sources: \"orders\" is not a [[source]]",
    );
    refused(
        "name = \"out\"",
        "name = \"elsewhere\"",
        "sink: \"out\" is not a [[sink]]",
    );
    refused(
        "[node]",
        "[[pipeline]]\nname='q'\nsources=['orders', 'dns']\ntime={from='append_time'}\nwindow={size='1m'}\nvalues={n='count()'}\n[node]",
        "pipeline \"q\": time.from: files have no append time, and source \"dns\" has files; name a field",
    );
    refused(
        "[node]",
        "[[pipeline]]\nname='q'\nsources=['dns']\ntime={field='t'}\nformat='msgpack'\nwindow={size='1m'}\nvalues={n='count()'}\n[node]",
        "pipeline \"q\": format: files are read by lines, which MessagePack has not, and source \"dns\" has files; read it from Kafka",
    );
    refused(
        "name = \"dns\"",
        "name = \"orders\"",
        "source \"orders\": name: \"orders\" is taken",
    );
    refused(
        "name = \"out\"",
        "name = \"builtin\"",
        "\"builtin\" is the built-in sink",
    );
    refused(
        "*.toml",
        "*.tml",
        "pipelines: no file matches \"pipelines/*.tml\"",
    );
    refused("pipelines/*", "pipes/*", "pipelines: cannot list");
    refused("*.toml", "*", "notes.txt: not TOML at line 1");
    refused(
        "[cluster]",
        "[cluster]\nheartbeat = \"300ms\"",
        "election_timeout: must be at least twice",
    );
    refused(
        "[cluster]",
        "[cluster]\nelection_timeout = [\"120ms\", \"60ms\"]",
        "must be less",
    );
    refused(
        "[cluster]",
        "[cluster]\nread_ahead = \"2GiB\"",
        "read_ahead: must be 4KiB to 1GiB",
    );
    refused(
        "topic = \"orders_stats\"",
        "topic = \"unisono_frontier\"",
        "must be a topic of its own",
    );
}

#[test]
fn what_would_get_into_its_own_way_is_refused() {
    let second = |kafka: &str| {
        let brokers = "brokers = \"other:1, LOCALHOST:9092\"";
        let sink = format!("[[sink]]\nname = \"two\"\nkafka = {{ {brokers}, {kafka} }}\n[[sink]]");
        NODE.replacen("[[sink]]", &sink, 1)
    };
    let check = |text: &str, expected: &str| {
        let shown = parse(text).unwrap_err().to_string();
        assert!(shown.contains(expected), "{expected}:\n{shown}");
    };
    check(
        &NODE.replace("orders_stats", "orders"),
        "sink \"out\": kafka.topic: \"orders\" is what source \"orders\" reads",
    );
    check(
        &second("topic = \"two\", dead_letters = \"orders\""),
        "sink \"two\": kafka.dead_letters: \"orders\" is what source \"orders\" reads",
    );
    check(
        &second("topic = \"two\", transactional_id = \"unisono-out\""),
        "sink \"out\": kafka.transactional_id: \"unisono-out\" is that of sink \"two\" too",
    );
    check(
        &second("topic = \"two\", frontier_topic = \"orders_stats\""),
        "sink \"out\": kafka.topic: \"orders_stats\" has another use in sink \"two\"",
    );
    // One frontier topic for both is as it should be, and so is anything in another cluster.
    assert!(parse(&second("topic = \"orders_stats\"")).is_ok());
    let elsewhere = second("topic = \"orders\", transactional_id = \"unisono-out\"");
    assert!(parse(&elsewhere.replace("LOCALHOST", "elsewhere")).is_ok());
    for http in ["127.0.0.1:8201", "0.0.0.0:8201", "127.0.0.1:8203"] {
        check(&NODE.replace("127.0.0.1:8101", http), "node.http: ");
    }
    refused("\"data/1\"", "\"\"", "unisono.toml:2: data_dir: is empty");
    refused(
        "dir = \"dns\"",
        "dir = \"dns\", pattern = \"[.ndjson\"",
        "has a bracket",
    );
}

#[test]
fn what_librdkafka_does_not_take_is_refused_without_the_value() {
    refused(
        "\"sasl.password\"",
        "\"sasl.passwordd\"",
        "properties.\"sasl.passwordd\": is not known to librdkafka; did you mean \"sasl.password\"?",
    );
    refused(
        "\"100\"",
        "\"soon\"",
        "properties.\"fetch.wait.max.ms\": has a value that librdkafka does not take",
    );
    refused(
        "topic = \"orders_stats\"",
        "topic = \"orders_stats\", properties = { \"compression.type\" = \"zippy\" }",
        "sink \"out\": kafka.properties.\"compression.type\": has a value",
    );
}

#[test]
fn a_missing_file_says_so() {
    let error = NodeConfig::load(Path::new("/nonexistent/unisono.toml")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nonexistent/unisono.toml: cannot read: ")
    );
}

#[test]
fn a_secret_file_lies_beside_the_config_and_members_elsewhere_are_seen() {
    let config = parse(NODE).unwrap();
    assert_eq!(config.cluster.secret_file, None);
    assert!(config.cluster.is_on_loopback());
    let away = NODE
        .replace("[cluster]", "[cluster]\nsecret_file = \"keys/cluster\"")
        .replace("2 = \"127.0.0.1:8202\"", "2 = \"unisono-2:8202\"");
    let config = parse(&away).unwrap();
    let file = config.cluster.secret_file.clone().unwrap();
    assert!(file.is_absolute() && file.ends_with("keys/cluster"));
    assert!(!config.cluster.is_on_loopback());
    for local in ["localhost:8202", "[::1]:8202", "127.9.9.9:8202"] {
        let text = NODE.replace("127.0.0.1:8202", local);
        assert!(parse(&text).unwrap().cluster.is_on_loopback(), "{local}");
    }
}
