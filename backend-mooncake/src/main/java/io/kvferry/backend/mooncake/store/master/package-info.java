// SPDX-License-Identifier: Apache-2.0
/// The directory of a store that has several owners: the master ([StoreMaster]), to which owners
/// report ([OwnerMembership]) and of which users learn who is there ([MasterView]).
///
/// The master holds no keys and no bytes. Each owner is whole in itself, so a master that dies
/// loses nothing: owners report to the next one, and users keep the list that they have.
@NullMarked
package io.kvferry.backend.mooncake.store.master;

import org.jspecify.annotations.NullMarked;
