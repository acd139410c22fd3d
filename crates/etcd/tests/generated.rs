//! The generated client of etcd's key-value service matches etcd's descriptions in `proto`.

use std::fs;
use std::path::Path;

/// Set this variable to `write` to replace the generated files.
const MODE: &str = "SERIATIM_GENERATED";

#[test]
fn the_generated_code_matches_the_descriptions() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let out = tempfile::tempdir().unwrap();
    let descriptions = protox::compile(["etcd/rpc.proto"], [&proto]).unwrap();
    let generator = tonic_prost_build::configure().build_server(false).build_transport(false).bytes(".");
    generator.out_dir(out.path()).compile_fds(descriptions).unwrap();
    for package in ["mvccpb", "etcdserverpb"] {
        let new = fs::read_to_string(out.path().join(format!("{package}.rs"))).unwrap();
        let kept = proto.join("generated").join(format!("{package}.in"));
        if std::env::var(MODE).is_ok_and(|mode| mode == "write") {
            fs::write(&kept, &new).unwrap();
        }
        let is_same = fs::read_to_string(&kept).unwrap() == new;
        assert!(is_same, "{package}: run `{MODE}=write cargo test -p seriatim-etcd --test generated`");
    }
}
