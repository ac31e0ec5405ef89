use super::*;

/// Offset, time after the first, key, value.
type Written = (i64, i64, Option<&'static [u8]>, Option<Vec<u8>>);

#[derive(Default)]
struct Writing {
    transactional: bool,
    control: Option<i16>,
    appended: bool,
    compression: i16,
    producer: i64,
    base: i64,
    records: Vec<Written>,
}

fn varint(to: &mut Vec<u8>, value: i64) {
    let mut raw = (value << 1 ^ value >> 63) as u64;
    while raw >= 0x80 {
        to.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    to.push(raw as u8);
}

fn field(to: &mut Vec<u8>, bytes: Option<&[u8]>) {
    varint(to, bytes.map_or(-1, |bytes| bytes.len() as i64));
    to.extend_from_slice(bytes.unwrap_or_default());
}

const BASE_TIME: i64 = 1_700_000_000_000;

impl Writing {
    fn bytes(&self) -> Vec<u8> {
        let mut records = Vec::new();
        for (offset, time, key, value) in &self.records {
            let mut one = vec![0];
            varint(&mut one, *time);
            varint(&mut one, offset - self.base);
            let control = self
                .control
                .map(|kind| [&[0, 0][..], &kind.to_be_bytes()].concat());
            field(&mut one, control.as_deref().or(*key));
            field(&mut one, value.as_deref());
            // One header.
            varint(&mut one, 1);
            field(&mut one, Some(b"trace"));
            field(&mut one, None);
            varint(&mut records, one.len() as i64);
            records.extend_from_slice(&one);
        }
        if self.compression == 4 {
            records = zstd::encode_all(&records[..], 1).unwrap();
        }
        let last = self.records.last().map_or(self.base, |record| record.0);
        let attributes = self.compression
            | i16::from(self.appended) << 3
            | i16::from(self.transactional) << 4
            | i16::from(self.control.is_some()) << 5;
        let mut covered = Vec::new();
        covered.extend_from_slice(&attributes.to_be_bytes());
        covered.extend_from_slice(&((last - self.base) as i32).to_be_bytes());
        covered.extend_from_slice(&BASE_TIME.to_be_bytes());
        covered.extend_from_slice(&(BASE_TIME + 777).to_be_bytes());
        covered.extend_from_slice(&self.producer.to_be_bytes());
        covered.extend_from_slice(&[0; 6]);
        covered.extend_from_slice(&(self.records.len() as i32).to_be_bytes());
        covered.extend_from_slice(&records);
        let mut batch = Vec::new();
        batch.extend_from_slice(&self.base.to_be_bytes());
        batch.extend_from_slice(&(covered.len() as i32 + 9).to_be_bytes());
        batch.extend_from_slice(&5_i32.to_be_bytes());
        batch.push(2);
        batch.extend_from_slice(&crc32c::crc32c(&covered).to_be_bytes());
        batch.extend_from_slice(&covered);
        batch
    }
}

fn plain(base: i64, count: i64) -> Writing {
    Writing {
        base,
        records: (base..base + count)
            .map(|offset| {
                (
                    offset,
                    offset - base,
                    None,
                    Some(format!("r{offset}").into_bytes()),
                )
            })
            .collect(),
        ..Writing::default()
    }
}

/// A batch of so many records from this offset on.
pub fn plain_batch(base: i64, count: i64) -> Vec<u8> {
    plain(base, count).bytes()
}

/// A batch of one record, about as large as that.
pub fn large_batch(base: i64, size: usize) -> Vec<u8> {
    let mut batch = plain(base, 1);
    batch.records[0].3 = Some(vec![b'x'; size]);
    batch.bytes()
}

type Found = Vec<(i64, Option<i64>, Option<String>)>;

fn read(bytes: &[u8], from: i64) -> Result<Found, BatchError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((batch, length)) = Batch::first(&bytes[at..])? {
        batch.verify()?;
        let (mut plain, mut located) = (b"before".to_vec(), Vec::new());
        let count = batch.read(from, &mut Decompressor::default(), &mut plain, |record| {
            located.push(record)
        })?;
        assert_eq!(count, located.len());
        for record in located {
            let text = record
                .payload
                .map(|range| String::from_utf8(plain[range].to_vec()).unwrap());
            found.push((record.offset, record.stamp.millis(), text));
        }
        at += length;
    }
    Ok(found)
}

#[test]
fn records_are_found_where_they_lie() {
    let mut batch = plain(100, 3);
    batch.records[1].2 = Some(b"key");
    batch.records[2].3 = None;
    // One that compaction took.
    batch.records.push((107, 9, None, Some(Vec::new())));
    for compression in [0, 4] {
        batch.compression = compression;
        let bytes = [batch.bytes(), plain(108, 1).bytes()].concat();
        let text = |text: &str| Some(text.to_owned());
        let expected = [
            (100, Some(BASE_TIME), text("r100")),
            (101, Some(BASE_TIME + 1), text("r101")),
            (102, Some(BASE_TIME + 2), None),
            (107, Some(BASE_TIME + 9), text("")),
            (108, Some(BASE_TIME), text("r108")),
        ];
        assert_eq!(read(&bytes, 0).unwrap(), expected);
        assert_eq!(read(&bytes, 102).unwrap(), expected[2..]);
        let whole = extent(&bytes).unwrap().unwrap();
        assert_eq!(
            (whole.length, whole.next, whole.epoch),
            (bytes.len(), 109, 5)
        );
        // The last one is cut off, as an answer's limit does it.
        let cut = extent(&bytes[..bytes.len() - 1]).unwrap().unwrap();
        assert_eq!((cut.length, cut.next), (batch.bytes().len(), 108));
        assert_eq!(extent(&bytes[..70]).unwrap(), None);
    }
}

#[test]
fn the_brokers_time_counts_where_it_stamps_and_none_where_there_is_none() {
    let stamped = Writing {
        appended: true,
        ..plain(0, 2)
    };
    let times = |of: &Writing| {
        read(&of.bytes(), 0)
            .unwrap()
            .iter()
            .map(|it| it.1)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&stamped), [Some(BASE_TIME + 777); 2]);
    let mut none = plain(0, 1);
    none.records[0].1 = -1 - BASE_TIME;
    assert_eq!(times(&none), [None]);
}

#[test]
fn what_is_damaged_is_told_with_its_offset() {
    let good = plain(100, 3).bytes();
    let mut flipped = good.clone();
    flipped[70] ^= 1;
    let told = read(&flipped, 0).unwrap_err().to_string();
    assert!(
        told.starts_with("the batch at offset 100 is damaged: its checksum is "),
        "{told}"
    );
    let mut old = good.clone();
    old[16] = 1;
    let told = Batch::first(&old).unwrap_err().to_string();
    assert!(
        told.contains("offset 100 has the old message format 1"),
        "{told}"
    );
    let mut short = good.clone();
    short[8..12].copy_from_slice(&20_i32.to_be_bytes());
    assert!(matches!(
        Batch::first(&short),
        Err(BatchError::Damaged { offset: 100, .. })
    ));
    // More records than there are.
    let mut batch = plain(100, 3);
    batch.records.truncate(2);
    let mut bytes = batch.bytes();
    bytes[57..61].copy_from_slice(&3_i32.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    let told = read(&bytes, 0).unwrap_err().to_string();
    assert!(told.contains("a record is cut short"), "{told}");
}

/// Bytes of any kind are read or refused, by each part of what reads them.
#[test]
fn whatever_bytes_come_nothing_panics() {
    let mut batch = plain(100, 5);
    batch.records[3].2 = Some(b"key");
    batch.compression = 4;
    let good = [plain(90, 10).bytes(), batch.bytes()].concat();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut decompressor = Decompressor::limited(1 << 20);
    let rounds = std::env::var("UNISONO_FUZZ").ok();
    let rounds: u64 = rounds
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(20_000);
    for _ in 0..rounds {
        let mut bytes = good.clone();
        for _ in 0..=random() % 4 {
            let at = random() as usize % bytes.len();
            bytes[at] = random() as u8;
        }
        bytes.truncate(random() as usize % (bytes.len() * 4));
        let _ = extent(&bytes);
        let mut aborted = Aborted::new([(0, 95), (7, random() as i64 % 200)]);
        let mut at = 0;
        while let Ok(Some((batch, length))) = Batch::first(&bytes[at..]) {
            let _ = batch.verify();
            let _ = aborted.admits(&batch);
            let mut plain = Vec::new();
            let mut located = Vec::new();
            let _ = batch.read(0, &mut decompressor, &mut plain, |record| {
                located.push(record)
            });
            for record in located {
                let _ = record.payload.map(|range| plain[range].len());
            }
            assert!(plain.capacity() < 8 << 20, "{}", plain.capacity());
            at += length;
        }
        let _ = super::super::fetch::read_fetch(&bytes, 13);
        let _ = super::super::messages::read_metadata(&bytes, "orders");
        let _ = super::super::messages::Spoken::read(&bytes);
        let _ = super::super::messages::read_describe_producers(&bytes);
    }
}

fn of_producer(producer: i64, base: i64, control: Option<i16>) -> Writing {
    Writing {
        transactional: true,
        producer,
        control,
        ..plain(base, if control.is_some() { 1 } else { 2 })
    }
}

#[test]
fn what_an_aborted_transaction_left_does_not_count() {
    let batches = [
        of_producer(1, 0, None),
        of_producer(2, 2, None),
        plain(4, 2),
        of_producer(1, 6, None),
        // 0: aborted; 1: committed.
        of_producer(1, 8, Some(0)),
        of_producer(1, 9, None),
        of_producer(2, 11, Some(1)),
        of_producer(1, 12, Some(1)),
    ];
    let bytes = batches.iter().flat_map(Writing::bytes).collect::<Vec<u8>>();
    let expected = [false, true, true, false, false, true, false, false];
    assert_eq!(admitted(&bytes, &[(1, 0)]), expected);
}

#[test]
fn what_the_same_producer_committed_just_before_it_aborted_counts() {
    let batches = [
        of_producer(1, 0, None),
        of_producer(1, 2, Some(1)),
        of_producer(1, 3, None),
        of_producer(1, 5, Some(0)),
        of_producer(1, 6, None),
    ];
    let bytes = batches.iter().flat_map(Writing::bytes).collect::<Vec<u8>>();
    let expected = [true, false, false, false, true];
    assert_eq!(admitted(&bytes, &[(1, 3)]), expected);
}

/// Whether each batch counts.
fn admitted(bytes: &[u8], aborted: &[(i64, i64)]) -> Vec<bool> {
    let mut aborted = Aborted::new(aborted.iter().copied());
    let mut admitted = Vec::new();
    let mut at = 0;
    while let Some((batch, length)) = Batch::first(&bytes[at..]).unwrap() {
        admitted.push(aborted.admits(&batch));
        at += length;
    }
    admitted
}
