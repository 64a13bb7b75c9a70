// SPDX-License-Identifier: Apache-2.0
/// The fleet's shared secret: one file that every process of a fleet reads, and what is signed with
/// it.
@NullMarked
package io.kvferry.toolkit.secret;

import org.jspecify.annotations.NullMarked;
