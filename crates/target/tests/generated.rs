//! The generated code matches the description in `proto`.

use std::fs;
use std::path::Path;

/// Set this variable to `write` to replace the generated file.
const MODE: &str = "SERIATIM_GENERATED";

#[test]
fn the_generated_code_matches_the_description() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let out = tempfile::tempdir().unwrap();
    let descriptions = protox::compile(["seriatim/target/v1/target.proto"], [&proto]).unwrap();
    let generator = tonic_prost_build::configure().build_transport(false).bytes(".");
    generator.out_dir(out.path()).compile_fds(descriptions).unwrap();
    let new = fs::read_to_string(out.path().join("seriatim.target.v1.rs")).unwrap();
    let kept = proto.join("generated/seriatim.target.v1.in");
    if std::env::var(MODE).is_ok_and(|mode| mode == "write") {
        fs::write(&kept, &new).unwrap();
    }
    let is_same = fs::read_to_string(&kept).is_ok_and(|kept| kept == new);
    assert!(is_same, "run `{MODE}=write cargo test -p seriatim-target --test generated`");
}
