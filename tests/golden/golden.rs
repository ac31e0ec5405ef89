//! Golden files: the bytes of each format, as hex in this folder. A format whose bytes change needs a new version, and
//! then a new file; `UNISONO_WRITE_GOLDEN=1` writes what is missing. Included by the crates that own the formats.

use std::fmt::Write as _;
use std::path::PathBuf;

/// The bytes of `tests/golden/<name>.hex`; they must be those of `made`.
///
/// # Panics
/// There is no such file, or it holds other bytes.
pub fn bytes(name: &str, made: &[u8]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder = folder.ancestors().map(|above| above.join("tests/golden"));
    let folder = folder.into_iter().find(|folder| folder.is_dir());
    let path = folder.unwrap_or_default().join(format!("{name}.hex"));
    if !path.exists() && std::env::var_os("UNISONO_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, hex(made))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(
        text,
        hex(made),
        "{}: the format's bytes have changed: it needs a new version",
        path.display()
    );
    unhex(&text)
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(32) {
        for byte in line {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    text
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte * 16 + *digit as u8))
        .collect()
}
