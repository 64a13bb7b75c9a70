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

    /// Allocates an item that the plan says to load: an unpublished range of the registered memory,
    /// not zeroed. The engine has reserved the space, so a NO_MEMORY failure is a bug. Publish or
    /// discard the item later, from any thread, also after `beginStep` has returned. A revoked load
    /// must discard before it reports Revoked.
    EncoderOutput allocate(EcItem item);

    /// The bytes are complete: the model may use them.
    void publish(String hash);

    /// Frees the space of an unpublished item.
    void discard(String hash);
}
