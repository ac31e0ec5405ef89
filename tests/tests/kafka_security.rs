//! A broker that asks who comes, and proves who it is: both readers come by every door, a node publishes by one, and what is
//! wrong is said with what to do.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use unisono::config::{KafkaReader, Properties};
use unisono_tests::kafka::{Door, Lanes, SecuredBroker, TestBroker, TokenEndpoint};
use unisono_tests::serve::{Addresses, PIPELINE, Served, event};

const READERS: [KafkaReader; 2] = [KafkaReader::Direct, KafkaReader::Librdkafka];
const PATIENCE: Duration = Duration::from_secs(30);

fn shared() -> Option<&'static SecuredBroker> {
    static SHARED: OnceLock<SecuredBroker> = OnceLock::new();
    (!TestBroker::skipped()).then(|| SHARED.get_or_init(|| SecuredBroker::start().unwrap()))
}

fn numbered(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|number| format!("r{number}")).collect()
}

fn topic(of: &SecuredBroker, name: &str, records: i64) {
    of.broker.create_topic(name, 1).unwrap();
    of.broker.produce(name, 0, &numbered(0..records)).unwrap();
}

fn open(
    address: &str,
    reader: KafkaReader,
    topic: &str,
    properties: &BTreeMap<String, String>,
) -> Lanes {
    let properties = Properties::new(properties.clone());
    Lanes::open_with(address, reader, topic, &[0], properties).unwrap()
}

#[test]
fn both_readers_come_by_every_door() {
    let Some(secured) = shared() else { return };
    topic(secured, "doors", 500);
    let doors = [
        (Door::Tls, ""),
        (Door::Mutual, ""),
        (Door::Sasl, "PLAIN"),
        (Door::Sasl, "SCRAM-SHA-256"),
        (Door::Sasl, "SCRAM-SHA-512"),
        (Door::SaslTls, "PLAIN"),
        (Door::SaslTls, "SCRAM-SHA-256"),
        (Door::SaslTls, "SCRAM-SHA-512"),
    ];
    for (door, mechanism) in doors {
        let [direct, client] = READERS.map(|reader| {
            let properties = secured.properties(door, mechanism);
            let mut lanes = open(&secured.address(door), reader, "doors", &properties);
            let ends = lanes.read_to_end();
            let ends =
                ends.unwrap_or_else(|error| panic!("{door:?} {mechanism} {reader:?}: {error}"));
            (lanes.lanes.remove(0), ends)
        });
        assert_eq!(direct.0.payloads(), numbered(0..500), "{door:?}");
        assert!(direct.0.records == client.0.records, "{door:?} {mechanism}");
        assert_eq!(direct.1, client.1, "{door:?} {mechanism}");
    }
}

/// Local ports of connections to that port.
fn connections(to: u16) -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let remote = format!(":{to:04X}");
    let fields =
        |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
    let rows = table.lines().skip(1).map(fields);
    // Established, by a process.
    let ours = rows.filter(|row| row[2].ends_with(&remote) && row[3] == "01");
    ours.map(|row| row[1].clone()).collect()
}

#[test]
fn reading_goes_on_over_one_connection_while_the_broker_asks_again_who_it_is() {
    let Some(secured) = shared() else { return };
    topic(secured, "renewed", 10);
    let address = secured.address(Door::Renewed);
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let properties = secured.properties(Door::Renewed, "SCRAM-SHA-512");
    let mut lane = open(&address, KafkaReader::Direct, "renewed", &properties);
    lane.read_to_end().unwrap();
    let before = connections(port);
    assert!(!before.is_empty());
    let begun = Instant::now();
    let mut sent = 10;
    // Four times.
    while begun.elapsed() < Duration::from_secs(11) {
        secured
            .broker
            .produce("renewed", 0, &numbered(sent..sent + 10))
            .unwrap();
        sent += 10;
        lane.read_for(Duration::from_millis(200)).unwrap();
    }
    let all = |lane: &mut Lanes| lane.count() == sent as usize;
    lane.turn_until("all read", all).unwrap();
    assert_eq!(lane.read_to_end().unwrap(), [sent]);
    assert_eq!(lane.lanes[0].payloads(), numbered(0..sent));
    assert_eq!(connections(port), before, "none was lost, none is new");
}

#[test]
fn a_password_that_is_changed_meanwhile_is_told_and_reading_goes_on_when_it_is_put_right() {
    let Some(secured) = shared() else { return };
    topic(secured, "changed", 10);
    let address = secured.address(Door::Renewed);
    let mut properties = secured.properties(Door::Renewed, "SCRAM-SHA-512");
    properties.insert("sasl.username".to_owned(), "bob".to_owned());
    let mut lane = open(&address, KafkaReader::Direct, "changed", &properties);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
    secured.set_password(Some("another")).unwrap();
    // When it is asked again, though the lane was read before.
    let error = lane.read_to_error().unwrap();
    assert!(
        error.contains("authentication failed: ") && error.contains("; check sasl.username"),
        "{error}"
    );
    secured.set_password(None).unwrap();
    let mut lane = open(&address, KafkaReader::Direct, "changed", &properties);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
}

#[test]
fn tokens_are_fetched_and_renewed() {
    let Some(secured) = shared() else { return };
    std::thread::scope(|scope| {
        let read = READERS.map(|reader| scope.spawn(move || read_by_tokens(secured, reader)));
        read.into_iter().for_each(|read| read.join().unwrap());
    });
}

fn read_by_tokens(secured: &SecuredBroker, reader: KafkaReader) {
    let topic = format!("tokens-{reader:?}");
    self::topic(secured, &topic, 10);
    let endpoint = TokenEndpoint::start().unwrap();
    let mut properties = secured.properties(Door::Token, "");
    properties.extend(endpoint.properties("hush"));
    let address = secured.address(Door::Token);
    let mut lane = open(&address, reader, &topic, &properties);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
    // All connections of a client use one; librdkafka reads by two clients.
    let clients = match reader {
        KafkaReader::Direct => 1,
        KafkaReader::Librdkafka => 2,
    };
    assert_eq!(endpoint.given(), clients);
    let begun = Instant::now();
    let third = |_: &mut Lanes| endpoint.given() >= 3 * clients || begun.elapsed() > PATIENCE;
    lane.turn_until("at the third token", third).unwrap();
    let more = numbered(10..20);
    secured.broker.produce(&topic, 0, &more).unwrap();
    lane.turn_until("all read", |lane| lane.count() == 20)
        .unwrap();
    assert_eq!(lane.lanes[0].payloads(), numbered(0..20));
    let given = endpoint.given();
    assert!(given < 6 * clients, "{given} tokens");
}

/// A source and a sink by one door.
fn streams(address: &str, name: &str, properties: &BTreeMap<String, String>) -> String {
    let properties = properties.iter();
    let properties: Vec<String> = properties
        .map(|(name, value)| format!("{name:?} = {value:?}"))
        .collect();
    let properties = properties.join(", ");
    let pipeline = PIPELINE.replace("time = {", "sink = \"out\"\ntime = {");
    format!(
        "[[source]]\nname = \"events\"\nkafka = {{ brokers = {address:?}, topic = \"{name}\", properties = {{ {properties} }} }}\n\
         [[sink]]\nname = \"out\"\nkafka = {{ brokers = {address:?}, topic = \"{name}-rows\", frontier_topic = \"{name}-frontier\", \
         transactional_id = \"{name}\", properties = {{ {properties} }} }}\n{pipeline}"
    )
}

fn publishes(
    secured: &SecuredBroker,
    door: Door,
    name: &str,
    properties: &BTreeMap<String, String>,
) {
    secured.broker.create_topic(name, 1).unwrap();
    let events: Vec<String> = (0..10).map(|second| event(second, "a")).collect();
    secured.broker.produce(name, 0, &events).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let streams = streams(&secured.address(door), name, properties);
    let mut served = Served::new(dir.path(), 1, &Addresses::of(1), &streams);
    served.start();
    served.wait_ready(200, "").unwrap();
    let rows = format!("{name}-rows");
    let published = served.wait("rows in the topic", |_| {
        let rows = secured.broker.read_committed(&rows).ok()?;
        (rows.len() >= 9).then_some(rows)
    });
    assert_eq!(published.unwrap().len(), 9);
}

#[test]
fn a_node_reads_and_publishes_by_a_password_and_tls() {
    let Some(secured) = shared() else { return };
    let properties = secured.properties(Door::SaslTls, "SCRAM-SHA-512");
    publishes(secured, Door::SaslTls, "node-password", &properties);
}

#[test]
fn a_node_reads_and_publishes_by_tokens() {
    let Some(secured) = shared() else { return };
    let endpoint = TokenEndpoint::start().unwrap();
    let mut properties = secured.properties(Door::Token, "");
    properties.extend(endpoint.properties("hush"));
    publishes(secured, Door::Token, "node-tokens", &properties);
}

#[test]
fn a_node_with_a_wrong_password_says_so_and_never_the_password() {
    let Some(secured) = shared() else { return };
    topic(secured, "node-wrong", 1);
    let mut properties = secured.properties(Door::SaslTls, "SCRAM-SHA-512");
    properties.insert("sasl.password".to_owned(), "hunter2".to_owned());
    let dir = tempfile::tempdir().unwrap();
    let address = secured.address(Door::SaslTls);
    let streams = streams(&address, "node-wrong", &properties);
    let mut served = Served::new(dir.path(), 1, &Addresses::of(1), &streams);
    served.start();
    let source = format!(
        "kafka source node-wrong: {address} cannot be read from: SASL authentication error"
    );
    let sink = format!(
        "kafka sink node-wrong-rows: {address} cannot be written to: SASL authentication error"
    );
    let said = |text: &str, served: &Served| served.said().contains(text).then_some(());
    served
        .wait(&source, |served| said(&source, served))
        .unwrap();
    served.wait(&sink, |served| said(&sink, served)).unwrap();
    let mut shown = served.said();
    for path in ["/readyz", "/v1/status", "/v1/config", "/metrics"] {
        shown.push_str(&served.get(path).unwrap().1);
    }
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn an_endpoint_of_tokens_must_be_who_it_says() {
    let Some(secured) = shared() else { return };
    topic(secured, "endpoint", 10);
    let endpoint = TokenEndpoint::start_secured(secured).unwrap();
    let mut properties = secured.properties(Door::Token, "");
    properties.extend(endpoint.properties("hush"));
    let mut with = |ca: &str| {
        properties.insert("https.ca.location".to_owned(), secured.file(ca));
        open(
            &secured.address(Door::Token),
            KafkaReader::Direct,
            "endpoint",
            &properties,
        )
    };
    assert_eq!(with("ca.pem").read_to_end().unwrap(), [10]);
    assert_eq!(endpoint.given(), 1);
    let error = with("other.pem").read_to_error().unwrap();
    let said = format!(
        "no token from {} (sasl.oauthbearer.token.endpoint.url): its certificate is of no authority that is trusted here: give \
         the authority's certificate by https.ca.location",
        endpoint.url
    );
    assert!(error.contains(&said), "{error}");
    assert_eq!(endpoint.given(), 1, "it was told nothing");
}

#[test]
fn a_token_that_nobody_signs_is_made_here() {
    let Some(secured) = shared() else { return };
    topic(secured, "unsigned", 10);
    let mut properties = secured.properties(Door::Token, "");
    let more = [
        ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ("sasl.oauthbearer.config", "principal=alice lifeSeconds=60"),
    ];
    properties.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let address = secured.address(Door::Token);
    for reader in READERS {
        let mut lane = open(&address, reader, "unsigned", &properties);
        assert_eq!(lane.read_to_end().unwrap(), [10], "{reader:?}");
    }
}

/// What is wrong, where, and what is said of it.
struct Wrong {
    address: String,
    properties: BTreeMap<String, String>,
    said: &'static str,
}

/// At a door, with other properties (an empty one: without it).
fn wrong(
    secured: &SecuredBroker,
    (door, mechanism): (Door, &str),
    changes: &[(&str, &str)],
    said: &'static str,
) -> Wrong {
    let mut properties = secured.properties(door, mechanism);
    for (name, value) in changes {
        match value.is_empty() {
            true => _ = properties.remove(*name),
            false => _ = properties.insert((*name).to_owned(), (*value).to_owned()),
        }
    }
    Wrong {
        address: secured.address(door),
        properties,
        said,
    }
}

/// Who is there is not who should be, or is not spoken to as it wants.
fn wrong_ends(secured: &SecuredBroker) -> Vec<Wrong> {
    let tls = (Door::Tls, "");
    let of = |changes: &[(&str, &str)], said| wrong(secured, tls, changes, said);
    let [other, twin] = ["other.pem", "twin.pem"].map(|name| secured.file(name));
    let untrusted = "its certificate is of no authority that is trusted here: give the authority's certificate by ssl.ca.location";
    let no_tls = [("security.protocol", "plaintext"), ("ssl.ca.location", "")];
    let mut by_address = of(&[], "its certificate is not for the name 127.0.0.1");
    by_address.address = by_address.address.replace("localhost", "127.0.0.1");
    let mut to_plain = of(&[], "its port may speak no TLS: set security.protocol");
    to_plain.address = secured.broker.address();
    vec![
        of(&[("ssl.ca.location", &other)], untrusted),
        of(&[("ssl.ca.location", &twin)], untrusted),
        of(
            &[("ssl.ca.location", "/no/such/file")],
            "ssl.ca.location: /no/such/file cannot be read",
        ),
        of(&no_tls, "its port may speak TLS: set security.protocol"),
        by_address,
        to_plain,
    ]
}

/// We are not who should come.
fn wrong_selves(secured: &SecuredBroker, endpoint: &TokenEndpoint) -> Vec<Wrong> {
    let (plain, tls) = (Door::Sasl, Door::SaslTls);
    let password = [("sasl.password", "hunter2")];
    let who = "; check sasl.username and sasl.password";
    let nobody = [("sasl.username", "eve")];
    let no_sasl = [
        ("security.protocol", "plaintext"),
        ("sasl.mechanism", ""),
        ("sasl.username", ""),
        ("sasl.password", ""),
    ];
    let anonymous = [("ssl.certificate.location", ""), ("ssl.key.location", "")];
    let of = |door, changes: &[(&str, &str)], said| wrong(secured, door, changes, said);
    let mut unasked = of(
        (plain, "PLAIN"),
        &[],
        "its port asks for no SASL: set security.protocol",
    );
    unasked.address = secured.broker.address();
    let mut mechanism = of(
        (plain, "PLAIN"),
        &[],
        "it does not offer the SASL mechanism PLAIN, but OAUTHBEARER: set sasl.mechanism",
    );
    mechanism.address = secured.address(Door::Token);
    let mut token = of((Door::Token, ""), &[], "it answers 401: invalid_client");
    token.properties.extend(endpoint.properties("hunter2"));
    vec![
        of((plain, "PLAIN"), &password, who),
        of((tls, "SCRAM-SHA-256"), &password, who),
        of((tls, "SCRAM-SHA-512"), &nobody, who),
        of(
            (Door::Mutual, ""),
            &anonymous,
            "it asks for a client's certificate: give ssl.certificate.location",
        ),
        of(
            (plain, "PLAIN"),
            &no_sasl,
            "its port may ask for SASL: set security.protocol",
        ),
        unasked,
        mechanism,
        token,
    ]
}

#[test]
fn what_is_wrong_is_said_with_what_to_do_and_without_the_password() {
    let Some(secured) = shared() else { return };
    topic(secured, "wrong", 10);
    let endpoint = TokenEndpoint::start().unwrap();
    let mut wrongs = wrong_ends(secured);
    wrongs.extend(wrong_selves(secured, &endpoint));
    std::thread::scope(|scope| {
        let asked = wrongs.iter().map(|wrong| {
            scope.spawn(|| {
                let Wrong {
                    address,
                    properties,
                    said,
                } = wrong;
                let mut lane = open(address, KafkaReader::Direct, "wrong", properties);
                let error = lane.read_to_error().unwrap();
                println!("{error}");
                assert!(error.contains(said), "{said}: {error}");
                assert!(!error.contains("hunter2"), "{error}");
                assert!(error.contains(address.as_str()), "{error}");
                // The same from try to try.
                let mut again = open(address, KafkaReader::Direct, "wrong", properties);
                assert_eq!(again.read_to_error().unwrap(), error);
            })
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().for_each(|asked| asked.join().unwrap());
    });
}

#[test]
fn names_and_chains_are_passed_over_on_request() {
    let Some(secured) = shared() else { return };
    topic(secured, "lenient", 10);
    let mut properties = secured.properties(Door::Tls, "");
    let mut set = |name: &str, value: String| _ = properties.insert(name.to_owned(), value);
    set("ssl.endpoint.identification.algorithm", "none".to_owned());
    let address = secured.address(Door::Tls).replace("localhost", "127.0.0.1");
    let mut lane = open(&address, KafkaReader::Direct, "lenient", &properties);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
    // The chain is looked at all the same, unless that is given up too.
    let mut set = |name: &str, value: String| _ = properties.insert(name.to_owned(), value);
    set("ssl.ca.location", secured.file("other.pem"));
    let mut lane = open(&address, KafkaReader::Direct, "lenient", &properties);
    let error = lane.read_to_error().unwrap();
    assert!(error.contains("of no authority that is trusted"), "{error}");
    properties.insert(
        "enable.ssl.certificate.verification".to_owned(),
        "false".to_owned(),
    );
    let mut lane = open(&address, KafkaReader::Direct, "lenient", &properties);
    assert_eq!(lane.read_to_end().unwrap(), [10]);
}
