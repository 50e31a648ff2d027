//! A look at a gate, before anything is asked of it.

use super::{Denied, Gates, Want};
use std::sync::Arc;

impl Gates {
    /// Whether a request would raise this fence. One that would not, never will: a fence only goes up.
    ///
    /// # Errors
    /// [`Denied`] where the store cannot answer.
    pub async fn would_raise(self: &Arc<Self>, want: &Want<'_>) -> Result<bool, Denied> {
        let stops = self.stops(std::slice::from_ref(want)).await?;
        let raises = stops.iter().filter_map(|stop| {
            let core = stop.cell.lock()?;
            Some(core.gate.fence() < stop.token)
        });
        Ok(raises.into_iter().any(|raises| raises))
    }
}
