//! Pins of a log: set, remove, and respect them in a trim.

use seriatim_model::{Pin, Position, pin};
use seriatim_protocol::control;

use crate::error::{ControlError, ReadError};
use crate::log::Log;

impl Log {
    /// Sets a pin: retention limits keep the records from `position` on, until these take more
    /// than `most_bytes`, each record counted once. Then the limits break the pin. `None`: as
    /// before; for a new pin 10 GiB.
    ///
    /// A log has at most 64 pins. A name follows the rule of log names. An intact pin moves only
    /// up; a broken one is set like a new one. The answer arrives when the register has the pin. A
    /// trim that was decided before may still remove records above a new pin. Reads then report it.
    ///
    /// # Errors
    /// [`ControlError::Trimmed`] if `position` is trimmed, by the replicas that answer; if records
    /// were trimmed during the call, the pin stays and keeps the records that remain. Otherwise if
    /// an argument is invalid, the pin would move down, the log was deleted or has too many pins,
    /// or no node answers in time.
    pub async fn pin(
        &self,
        name: &str,
        position: Position,
        most_bytes: Option<u64>,
    ) -> Result<(), ControlError> {
        self.check_kept(position).await?;
        let (log, name) = (self.entry().id, name.to_owned());
        let question = move |request| {
            let name = name.clone();
            control::Message::Pin { request, log, name, position, most_bytes }
        };
        self.client().change_catalog(question).await?;
        self.check_kept(position).await
    }

    /// Removes a pin. Does nothing if the log has no such pin.
    ///
    /// # Errors
    /// If the log was deleted, or no node answers in time.
    pub async fn unpin(&self, name: &str) -> Result<(), ControlError> {
        let (log, name) = (self.entry().id, name.to_owned());
        let question = move |request| control::Message::Unpin { request, log, name: name.clone() };
        self.client().change_catalog(question).await
    }

    /// The log's pins at the register, in the order of names.
    ///
    /// # Errors
    /// If the log was deleted, or no node answers in time.
    pub async fn pins(&self) -> Result<Vec<Pin>, ControlError> {
        let entry = self.client().lookup(self.name()).await?;
        if entry.id != self.entry().id {
            return Err(ControlError::NoSuchLog { name: self.name().to_owned() });
        }
        Ok(entry.pins)
    }

    async fn check_kept(&self, position: Position) -> Result<(), ControlError> {
        let entry = self.client().lookup(self.name()).await?;
        let first = self.client().log_use(&entry).await.first;
        if position < first {
            return Err(ControlError::Trimmed { position, first });
        }
        Ok(())
    }

    pub(crate) async fn check_pins(&self, position: Position) -> Result<(), ReadError> {
        let pins = self.pins().await.map_err(|error| match error {
            ControlError::NoSuchLog { name } => ReadError::Deleted(name),
            other => ReadError::Register(other),
        })?;
        match pin::lowest(&pins).filter(|pin| pin.position < position) {
            Some(pin) => Err(ReadError::Pinned {
                log: self.name().to_owned(),
                pin: pin.name.clone(),
                at: pin.position,
                position,
            }),
            None => Ok(()),
        }
    }
}
