//! Nodes that leave the cluster.

use seriatim_model::NodeId;
use seriatim_protocol::control::parting::{self, PartingChange, Partings};
use seriatim_protocol::control::{self};

use crate::client::{Client, refused};
use crate::error::ControlError;

impl Client {
    /// Sets the planned departure of a node. A drain takes time; [`parting::is_rid_of`] tells when
    /// it is complete.
    ///
    /// # Errors
    /// If the register rejects the change (the error has the reason), or no node answers in time.
    pub async fn part(&self, node: NodeId, change: PartingChange) -> Result<(), ControlError> {
        self.change_catalog(move |request| control::Message::Part { request, node, change }).await
    }

    /// Planned departures of nodes.
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
