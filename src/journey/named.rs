//! A request whose body says what it changes: it is read before the request is judged.

use super::Journey;
use crate::forward::{Outgoing, Place};
use crate::refusal::Why;
use crate::route::{Match, Reject, listing};

impl Journey {
    /// Finds the request's resources, and gives its place among the bodies that are held. What says nothing goes on
    /// where nothing is enforced.
    ///
    /// # Errors
    /// Why the body cannot be had; within, why what it says goes no further.
    pub(super) async fn named<'a>(
        &'a self,
        found: &mut Match<'a>,
        request: &mut Outgoing,
    ) -> Result<Result<Place<'a>, Reject<'a>>, Why> {
        let gathered = self.upstreams.gather(request, listing::LARGEST).await;
        let (body, place) = gathered?;
        self.is_own(found.route, &request.head, &body)?;
        let routes = &self.shared.routes;
        Ok(match routes.named(found, &request.head, &body) {
            Err(reject) if routes.enforces(found.route) => Err(reject),
            Ok(()) | Err(_) => Ok(place),
        })
    }
}
