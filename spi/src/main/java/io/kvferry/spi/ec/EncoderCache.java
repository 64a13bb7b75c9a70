// SPDX-License-Identifier: Apache-2.0
package io.kvferry.spi.ec;

import java.util.Optional;

/// The worker's encoder cache, which the engine owns. An entry is invisible to the model until it
/// is published.
///
/// Threading: any thread.
public interface EncoderCache {
    /// The published output of an item; its memory stays in place until a revocation or the end of
    /// the step.
    Optional<EncoderOutput> get(String hash);

    /// Room for an item that the plan tells to load: a range of the registered memory, unpublished,
    /// with whatever bytes it has. The engine has reserved it, so running out is a defect
    /// (NO_MEMORY). The item is published or discarded later, by any thread, also after `beginStep`
    /// returned; a revoked load discards before it reports Revoked.
    EncoderOutput allocate(EcItem item);

    /// The bytes are complete: the model may use them.
    void publish(String hash);

    /// Gives the room of an unpublished item back.
    void discard(String hash);
}
