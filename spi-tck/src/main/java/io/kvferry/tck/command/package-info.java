// SPDX-License-Identifier: Apache-2.0
/// The contract of a command of a plugin as JUnit tests: subclass
/// [io.kvferry.tck.command.CommandContract].
@NullMarked
package io.kvferry.tck.command;

import org.jspecify.annotations.NullMarked;
