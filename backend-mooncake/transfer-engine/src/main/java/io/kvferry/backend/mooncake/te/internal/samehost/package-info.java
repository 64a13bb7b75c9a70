// SPDX-License-Identifier: Apache-2.0
/// Transfers between two processes of one host: shared memory, cross memory attach, and the control
/// page through which owner and user agree who may copy where.
@NullMarked
package io.kvferry.backend.mooncake.te.internal.samehost;

import org.jspecify.annotations.NullMarked;
