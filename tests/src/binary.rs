//! The program under test.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The path of the program `unisono`, built once for each test process in the tests' own profile; or the one that
/// `UNISONO_TEST_BINARY` names, to see whether a test fails on another version.
///
/// # Panics
/// If it cannot be built.
#[must_use]
pub fn unisono_binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let named = || std::env::var_os("UNISONO_TEST_BINARY").map(PathBuf::from);
    BUILT.get_or_init(|| named().unwrap_or_else(build)).clone()
}

fn build() -> PathBuf {
    // The test stands in target/PROFILE/deps.
    let test = std::env::current_exe().expect("the test's own path");
    let profile = test.ancestors().nth(2).expect("target/PROFILE/deps/test");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // Of the whole workspace, as the tests are: with other features chosen, all dependencies would be built again.
    command.args(["build", "--quiet", "--workspace", "--bin", "unisono"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let status = command.status().expect("cargo runs");
    assert!(status.success(), "cannot build the program: {status}");
    profile.join("unisono")
}
