//! Generates the client of etcd's key-value service from etcd's own descriptions.

use std::error::Error;

const SERVICE: &str = "etcd/rpc.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptions = protox::compile([SERVICE], ["proto"])?;
    let generator = tonic_prost_build::configure().build_server(false).build_transport(false).bytes(".");
    generator.compile_fds(descriptions)?;
    Ok(())
}
