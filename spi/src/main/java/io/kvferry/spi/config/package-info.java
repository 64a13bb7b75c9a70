// SPDX-License-Identifier: Apache-2.0
/// Configuration as plugins see it: option schemas, validated values, and the settings common to
/// all connectors. Reading JSON is the host's work (`multiconnector`); this package knows only
/// plain maps and lists.
@NullMarked
package io.kvferry.spi.config;

import org.jspecify.annotations.NullMarked;
