// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.KvFerryException;

/// A permission to write into parts of registered memory, for one transfer. It does not permit
/// READs.
///
/// The owner of the memory hands [#token] to the writing peer, which names it in
/// [EngineRequest#capability]. A write with a token is applied only while the grant is open and
/// only inside what it covers, so that a late write into a block that has been reused is refused.
/// Native peers cannot name a token: their writes into memory of [Access#GRANTED] are applied only
/// under an open grant for any peer, and their writes into [Access#OPEN] memory are not affected.
///
/// Threading: any thread.
public interface WriteGrant extends AutoCloseable {
    /// The peers that may write under a grant.
    enum Writers {
        /// Those that name the token.
        TOKEN,

        /// Everybody, with the token or without: for peers that know no tokens.
        ANY
    }

    /// The state of the WRITEs under a grant for any peer.
    enum Received {
        /// Every byte has arrived in whole WRITEs.
        ALL,

        /// Some have not, and each WRITE so far was acknowledged to its sender: a sender of this
        /// kind reports a WRITE as done when it is in this memory.
        ACKNOWLEDGED,

        /// Some bytes have not arrived and may still be in flight, whatever their sender has
        /// reported. Either nothing has arrived yet, or the sender gets no receipt for its WRITEs
        /// (Mooncake before 0.3.12).
        PART,

        /// A WRITE ended in the middle, or was refused without a receipt, or came after the grant
        /// was closed: the memory may differ from what its senders report.
        BROKEN
    }

    /// Of a grant for any peer, open or closed: what has arrived of `wanted`, which is part of what
    /// the grant covers.
    ///
    /// @throws IllegalStateException for other grants, whose writers are told what became of each
    ///   WRITE
    default Received received(Extents wanted) {
        throw new IllegalStateException("not a grant for any peer");
    }

    /// Never 0; not guessable.
    long token();

    /// Ends the permission. On return no write under it touches the memory any more; a write in
    /// progress is cut off. Concurrent callers all wait for the end; after a failure another call
    /// tries again.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a process of this host was stopped in the
    ///   middle of a copy and may still touch the memory, which then must not be reused
    @Override
    void close();
}
