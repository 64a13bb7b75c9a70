// SPDX-License-Identifier: Apache-2.0
package io.kvferry.backend.mooncake.te;

import io.kvferry.spi.KvFerryException;

/// A capability to write into a part of registered memory, for one transfer.
///
/// The owner of the memory hands [#token] to the writing peer, which names it in
/// [TransferRequest#capability]. A write that names a token is applied only while the grant is open
/// and only inside its range, so that a late write into a block that was given to somebody else is
/// refused. A write without token (which is all that native peers can send) is not affected.
///
/// Threading: any thread.
public interface WriteGrant extends AutoCloseable {
    /// Never 0; not guessable.
    long token();

    /// Revokes the token. On return no write under it touches the memory any more; a writer in the
    /// middle of one is cut off. Every caller awaits the same end; after a failure a further call
    /// tries again.
    ///
    /// @throws KvFerryException [ErrorCode#TIMEOUT] when a process of this host was stopped in the
    ///   middle of a copy and may still touch the memory, which must not be reused then
    @Override
    void close();
}
