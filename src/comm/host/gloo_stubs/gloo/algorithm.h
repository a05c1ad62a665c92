// Stands in for a gloo header that torch includes and does not ship; nothing of it is used. See gloo_factory.cpp.
#pragma once
