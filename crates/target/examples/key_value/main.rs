//! A key-value store that a player fills: a gRPC target with its data in SQLite.
//!
//! ```text
//! cargo run -p seriatim-target --example key_value -- store.db 127.0.0.1:7800
//! ```
//!
//! It prints the address once it listens. Each mutation is a line of text: `set KEY VALUE`,
//! `add KEY NUMBER` or `delete KEY`. Bound and effects are in one transaction, so the store can be
//! killed at any time. The table `changes` holds all applied mutations in order.
#![expect(clippy::print_stdout, reason = "an example prints its address")]

mod store;

use std::error::Error;

use seriatim_target::serve;
use store::Store;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, address] = &arguments[..] else {
        return Err("give a file and an address, for example: store.db 127.0.0.1:7800".into());
    };
    let store = Store::open(file)?;
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let interrupted = async { tokio::signal::ctrl_c().await.expect("the system has signals") };
    serve(listener, store, interrupted).await?;
    Ok(())
}
