#include <iostream>

#include "tools/ctl/app.h"

int main(int argc, char** argv) { return cistern::ctl::RunApp(argc, argv, std::cout, std::cerr); }
