// SPDX-License-Identifier: Apache-2.0
/// A store in a process of its own: the owner ([StoreOwner]) and its users ([RemoteStore]).
///
/// Questions travel over the side channel (`toolkit.zmtp`), encrypted where the fleet has a secret.
/// Bytes travel by the transfer engine, straight between the memory of the two: what is put is
/// written by the user under a grant of the owner, which ends before the object can be read; what
/// is got is written by the owner under a grant of the user, which ends before the user reads it.
/// Nobody reads the memory of another process, and the owner lets each user write only where a put
/// of its own is under way.
@NullMarked
package io.kvferry.backend.mooncake.store.remote;

import org.jspecify.annotations.NullMarked;
