//! A request whose body says what it changes: it is read before the request is judged.

use super::Journey;
use crate::forward::{Outgoing, Place, Ungathered};
use crate::refusal::Why;
use crate::route::{Match, Reject, listing};

impl Journey {
    /// The request with its resources, and its place among the bodies that are held.
    ///
    /// # Errors
    /// Why the body cannot be had; within, why what it says goes no further.
    pub(super) async fn named<'a>(
        &'a self,
        found: Match<'a>,
        request: &mut Outgoing,
    ) -> Result<Result<(Match<'a>, Place<'a>), Reject<'a>>, Why> {
        let gathered = self.upstreams.gather(request, listing::LARGEST).await;
        let (body, place) = gathered.map_err(|why| match why {
            Ungathered::Busy => Why::Busy,
            Ungathered::TooLarge => Why::TooLarge { sent: false },
            Ungathered::Broken => Why::Body { sent: false },
            Ungathered::Trailers => {
                Why::Malformed("trailers after a body that says what is changed".into())
            }
        })?;
        let found = self.shared.routes.named(found, &request.head, &body);
        Ok(found.map(|found| (found, place)))
    }
}
