// SPDX-License-Identifier: Apache-2.0
/// The commands that this module adds to `kvferry`: the processes of a store (`owner`, `master`,
/// `run-with-owner`) and those that look into one (`store ls`, `store exists`, `store get`).
@NullMarked
package io.kvferry.backend.mooncake.store.command;

import org.jspecify.annotations.NullMarked;
