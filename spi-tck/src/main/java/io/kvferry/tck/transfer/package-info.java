// SPDX-License-Identifier: Apache-2.0
/// The contract of a transfer backend as JUnit tests: subclass
/// [io.kvferry.tck.transfer.TransferBackendContract].
@NullMarked
package io.kvferry.tck.transfer;

import org.jspecify.annotations.NullMarked;
