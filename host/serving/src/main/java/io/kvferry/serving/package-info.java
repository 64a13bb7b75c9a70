// SPDX-License-Identifier: Apache-2.0
/// Serving: HTTP API, P/D router and command line. It composes an engine from a configuration;
/// connectors, transfer backends and model runners are met at run time only, through
/// [java.util.ServiceLoader].
@NullMarked
package io.kvferry.serving;

import org.jspecify.annotations.NullMarked;
