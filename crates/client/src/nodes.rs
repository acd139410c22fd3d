//! Nodes that are to leave the cluster.

use seriatim_model::NodeId;
use seriatim_protocol::control::parting::{self, PartingChange, Partings};
use seriatim_protocol::control::{self};

use crate::client::{Client, refused};
use crate::error::ControlError;

impl Client {
    /// Sets what is to become of a node. To drain it takes a while; see [`parting::is_rid_of`] for
    /// when it is.
    ///
    /// # Errors
    /// If that cannot be, for the reason that it says, or no node answers in time.
    pub async fn part(&self, node: NodeId, change: PartingChange) -> Result<(), ControlError> {
        self.change_catalog(move |request| control::Message::Part { request, node, change }).await
    }

    /// The planned outcomes for the nodes that do not stay.
    ///
    /// # Errors
    /// If no node answers in time.
    pub async fn partings(&self) -> Result<Partings, ControlError> {
        match self.ask_register(|request| control::Message::AskPartings { request }).await? {
            control::Message::PartingsAre { partings, .. } => Ok(parting::gathered(partings)),
            other => Err(refused(other)),
        }
    }
}
