// SPDX-License-Identifier: Apache-2.0
/// Commands that plugins add to the `kvferry` command line.
@NullMarked
package io.kvferry.spi.command;

import org.jspecify.annotations.NullMarked;
