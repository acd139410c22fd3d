//! Binding, and limits of accepted callers.

use crate::support::{CLUSTER, identity, node};
use seriatim_model::NodeId;
use seriatim_net::{
    BindError, Caller, ConnectError, Connected, ConnectionOptions, HandshakeError, Hello, ListenOptions,
    Listener, RefusalCode, connect,
};

async fn enter(address: &str, hello: &Hello) -> Result<Connected, RefusalCode> {
    match connect(address, hello, &ConnectionOptions::default()).await {
        Ok(connected) => Ok(connected),
        Err(ConnectError::Handshake { source: HandshakeError::Refused(refusal), .. }) => Err(refusal.code),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let first = Listener::bind("127.0.0.1:0").await.unwrap();
    let error = Listener::bind(&first.address().to_string()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("port {} on 127.0.0.1 is in use by another process; choose another", first.address().port())
    );
}

#[tokio::test]
async fn a_bad_address_says_what_to_give() {
    for bad in ["", "7700", "127.0.0.1", "127.0.0.1:99999"] {
        let error = Listener::bind(bad).await.unwrap_err();
        assert!(matches!(error, BindError::BadAddress { .. }), "{error}");
        assert!(error.to_string().contains("HOST:PORT"), "{error}");
    }
    let error = Listener::bind("192.0.2.1:0").await.unwrap_err();
    assert!(matches!(error, BindError::NotLocal(_)), "{error}");
}

#[tokio::test]
async fn clients_beyond_the_bound_are_refused_and_nodes_are_not() {
    let (address, mut incoming) = node(ListenOptions { max_clients: 2, ..Default::default() }).await;
    let client = Hello::client("one of many");
    let first = enter(&address, &client).await.unwrap();
    let _second = enter(&address, &client).await.unwrap();
    let accepted = [incoming.next().await, incoming.next().await];
    assert_eq!(enter(&address, &client).await.unwrap_err(), RefusalCode::Full);
    enter(&address, &Hello::node(CLUSTER, NodeId(2), 1, "x:1")).await.unwrap();

    // A place is free once its socket is closed, soon after both ends are dropped.
    drop((first, accepted));
    let freed = async {
        while enter(&address, &client).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), freed).await.unwrap();
}

#[tokio::test]
async fn dropping_what_comes_in_stops_listening() {
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.address().to_string();
    drop(listener.serve(identity(), ListenOptions::default()));
    let free = async {
        while let Err(error) = Listener::bind(&address).await {
            assert!(matches!(error, BindError::InUse(_)));
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(5), free).await.unwrap();
}

#[tokio::test]
async fn a_client_that_comes_early_waits_until_clients_are_served_and_a_node_does_not() {
    let (serve, clients_from) = tokio::sync::watch::channel(false);
    let options = ListenOptions { clients_from: Some(clients_from), ..Default::default() };
    let (address, mut incoming) = node(options).await;
    let connections = ConnectionOptions::default();
    let early = connect(&address, &Hello::client("early"), &connections).await.unwrap();
    let hello = Hello::node(CLUSTER, NodeId(2), 7, "here:1");
    let other = connect(&address, &hello, &connections).await.unwrap();
    assert!(matches!(incoming.next().await.hello.caller, Caller::Node { .. }));
    serve.send_replace(true);
    assert!(matches!(incoming.next().await.hello.caller, Caller::Client { .. }));
    drop((early, other));
}
